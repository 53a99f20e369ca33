#pragma once

#include "api/job_types.hpp"
#include "server/supervisor/restart_policy.hpp"

/// The intent for a job, and how a run of it ended.
namespace distilld {

/// The intent for a job that has not ended.
enum class JobWish {
    run,      ///< to the end
    pause,    ///< the user wants it to rest
    resume,   ///< its worker was told to stop for a pause that was withdrawn: the job is queued when the worker has
              ///< ended
    cancel,   ///< the user wants it to end
    requeue,  ///< the service stops: the job resumes later
};

/// The present phase of the job.
enum class JobPhase {
    waiting,   ///< in the queue
    running,   ///< it has a worker
    stopping,  ///< its worker was told to checkpoint and stop
    killed,    ///< its worker did not stop in time and was killed
    resting,   ///< it has no worker and waits for the user
};

struct JobIntent {
    JobWish wish = JobWish::run;
    JobPhase phase = JobPhase::waiting;
    bool operator==(const JobIntent&) const = default;
};

/// Whether a run that is cancelled saves its last steps.
enum class LastCheckpoint { write, skip };

/// Code of the reason of a job whose worker died and is started again.
inline constexpr const char* kWorkerRestarting = "worker_restarting";
/// The same for a worker that ran out of memory and is started again with smaller micro-batches.
inline constexpr const char* kOutOfMemoryRestarted = "out_of_memory_restarted";

/// Code of the reason of a job with a worker that is to stop for a pause that was withdrawn.
inline constexpr const char* kResumedByUser = "resumed_by_user";

/// Code of the reason of a job that waits for another to seal the first shard of its store.
inline constexpr const char* kWaitingForStore = "waiting_for_store";

/// How a run ended.
struct WorkerOutcome {
    enum class Kind {
        finished,
        cancelled,          ///< it stopped because it was told to (not necessarily by us)
        failed,             ///< it reported why: `reason`; its code is an error kind
        died,               ///< it did not report its end: `reason.message` if something is known
        out_of_memory,      ///< memory ran out, as it or the kernel reported: `reason`
        cancelled_outside,  ///< somebody has ended the job outside of the service: `reason`
        not_started,        ///< the worker never got the job: `reason` says why
    };
    Kind kind = Kind::died;
    bool checkpoint = false;  ///< cancelled: its progress is saved
    api::StatusReason reason{};
    RunReach reach{};
};

}  // namespace distilld
