#pragma once

#include "api/job_types.hpp"
#include "server/supervisor/restart_policy.hpp"

/// What is wanted of a job, and how a run of it ended.
namespace distilld {

/// What is wanted of a job that has not ended.
enum class JobWish {
    run,      ///< to the end
    pause,    ///< the user wants it to rest
    resume,   ///< its worker was told to stop for a pause that is not wanted any more: it is queued when it has
    cancel,   ///< the user wants it to end
    requeue,  ///< the service stops: the job goes on later
};

/// How far it is.
enum class JobPhase {
    waiting,   ///< in the queue
    running,   ///< it has a worker
    stopping,  ///< its worker was told to checkpoint and stop
    killed,    ///< its worker did not obey in time and was killed
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
/// Of one whose worker ran out of memory, and is started again with smaller micro-batches.
inline constexpr const char* kOutOfMemoryRestarted = "out_of_memory_restarted";

/// Code of the reason of a job whose worker is to stop for a pause that is not wanted any more.
inline constexpr const char* kResumedByUser = "resumed_by_user";

/// How a run ended.
struct WorkerOutcome {
    enum class Kind {
        finished,
        cancelled,      ///< it stopped because it was told to (not necessarily by us)
        failed,         ///< it said why: `reason`, whose code is an error kind
        died,           ///< it said nothing of its end: `reason.message` if something is known
        out_of_memory,  ///< memory ran out, as it said or as the kernel did: `reason`
        not_started,    ///< there was no worker that could have been told the job: `reason` says what kept it
    };
    Kind kind = Kind::died;
    bool checkpoint = false;  ///< cancelled: what it had done is saved
    api::StatusReason reason{};
    RunReach reach{};
    MicroBatches cut{};  ///< into which the run cut its steps; not known before it has begun
};

}  // namespace distilld
