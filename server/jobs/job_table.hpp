#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "api/job_types.hpp"
#include "server/jobs/job_intent.hpp"
#include "server/jobs/job_queue.hpp"
#include "server/jobs/job_verdict.hpp"
#include "server/jobs/path_claims.hpp"
#include "server/supervisor/restart_policy.hpp"

namespace distilld {

/// What a client wants to submit, and what is known of it.
struct JobSubmission {
    bool dry_run = false;
    /// Set when a job was submitted before with the same idempotency key, which is still remembered.
    struct Earlier {
        bool same_body = false;
    };
    std::optional<Earlier> earlier;
    std::optional<PathClaims> claims;  ///< empty = the spec is invalid
};

/// Run a worker for the job, which is `running` from here on. Answer with on_ended() at the end of the worker, or when
/// there can be none.
struct StartWorkerAction {
    std::string id;
    bool resume = false;
    std::optional<MicroBatches> cut{};  ///< in place of what the spec says
};
/// Tell the worker to checkpoint and end; or, perhaps after that, to end without.
struct StopWorkerAction {
    std::string id;
    LastCheckpoint last = LastCheckpoint::write;
};
/// Tell the worker to checkpoint and go on.
struct CheckpointWorkerAction {
    std::string id;
};
/// End the worker by force.
struct KillWorkerAction {
    std::string id;
};
/// The job has come to a state: store it, append it to the job's history, wake its readers. Nothing follows for the job
/// after a terminal one, unless it is enqueued again.
struct StoreStateAction {
    std::string id;
    api::JobState state = api::JobState::queued;
    std::optional<api::StatusReason> reason;
    bool resume = false;  ///< not terminal: the next run goes on from the newest checkpoint
    bool waits = false;   ///< queued: for what `reason` says to pass; whoever stores it says since when
};
/// The job runs on until its worker has stopped: store that its end was asked for, append it to the history.
struct StoreCancelRequestAction {
    std::string id;
};
/// The user asked for something: append it to the job's history.
struct StoreNoteAction {
    std::string id;
    std::string message;
};
/// The service stops: wake every reader.
struct WakeReadersAction {};

using JobAction = std::variant<StartWorkerAction, StopWorkerAction, CheckpointWorkerAction, KillWorkerAction,
                               StoreStateAction, StoreCancelRequestAction, StoreNoteAction, WakeReadersAction>;

struct JobTableOptions {
    std::uint32_t slots = 1;                  ///< jobs that run at once
    std::chrono::nanoseconds cancel_grace{};  ///< between the order to stop and the end by force
    RestartLimits restarts{};
    std::chrono::nanoseconds stop_grace{};  ///< the same when the service stops; 0 = cancel_grace
    std::size_t max_queued = SIZE_MAX;      ///< jobs that wait, beyond which no further one is taken
};

/// A job as the store has it when the service starts.
struct RestoredJob {
    std::string id;
    PathClaims claims;
    bool running = false;  ///< it ran when the service ended without a chance to say so
    bool cancel_requested = false;
    bool resume = false;
    bool paused = false;  ///< it is; or, if it was running, was on its way there
    QueuePlace place{};
    bool begun = false;  ///< it has had a worker
};

/// Decides what becomes of each job that has not ended: who waits, who runs, who is told to stop, and what the end of a
/// worker means. A pure state machine: events in, actions out; ids and time come as arguments. It has no clock, no
/// thread, no store and no worker, so its whole behaviour stands in one table of tests.
///
/// After any event call poll() and carry out the actions in their order; call it again at next_wakeup(). Events about
/// jobs that the table does not have, or that make no sense in a job's state, change nothing. An event looks at the job
/// that it concerns and at those that have a worker, however many wait.
class JobTable {
  public:
    using Time = std::chrono::steady_clock::time_point;

    explicit JobTable(JobTableOptions options) : options_(options) {}
    JobTable(const JobTable&) = delete;  // workers_ points into jobs_
    JobTable& operator=(const JobTable&) = delete;
    JobTable(JobTable&&) = delete;
    JobTable& operator=(JobTable&&) = delete;
    ~JobTable() = default;

    // --- events ---
    /// Before start(), oldest job first.
    void restore(const RestoredJob& job);
    /// Before start(): one that has ended, and what it may have written.
    void restore_ended(const std::string& id, const PathClaims& claims);
    /// It is deleted: what it has written is no longer its owner's.
    void forget(const std::string& id) { claims_.forget(id); }
    /// Jobs may run from now on.
    void start();
    /// No job is taken or started any more; those that run are to stop and to go on at the next start.
    void stop(Time now);
    /// created, existing, valid, or a refusal.
    [[nodiscard]] JobVerdict judge(const JobSubmission& submission) const;
    /// The job is on disk and waits for its turn; one that had ended goes on with `resume`.
    void enqueue(const std::string& id, const PathClaims& claims, QueuePlace place = {}, bool resume = false);
    /// Links may lead elsewhere since the job was taken: what it claims now, where that is free. Else why not, and
    /// nothing changes.
    std::optional<ClaimConflict> claim_again(const std::string& id, const std::vector<PathClaim>& paths);
    /// True: it will end (or has). False: there is no such job, or it has ended before.
    bool cancel(const std::string& id, Time now, LastCheckpoint last = LastCheckpoint::write);
    // accepted, cancelling, not_running, or not_found: there is no such job, or it has ended
    /// It comes to have no worker and no turn until it is resumed.
    JobVerdict pause(const std::string& id, Time now);
    /// It goes back to its place in the queue, or will when its worker has ended.
    JobVerdict resume(const std::string& id);
    /// Its worker writes a checkpoint and goes on.
    JobVerdict checkpoint(const std::string& id);
    /// False: there is no such job.
    bool set_priority(const std::string& id, std::int32_t priority);
    /// A worker that died, and one that could not be started, send the job back to its place in the queue, where it
    /// waits for a while (RestartPolicy) and holds up those behind it: what kept it would keep them.
    void on_ended(const std::string& id, const WorkerOutcome& outcome, Time now);

    // --- actions ---
    [[nodiscard]] std::vector<JobAction> poll(Time now);
    /// When there will be something to do although no event comes.
    [[nodiscard]] std::optional<Time> next_wakeup() const;
    /// Who came to wait and who does not any more since the last call, in this order: for one that shows the queue.
    [[nodiscard]] std::vector<QueueChange> take_queue_changes() { return std::exchange(queue_changes_, {}); }

    // --- what it sees ---
    [[nodiscard]] bool stopping() const noexcept { return mode_ == Mode::stopping; }
    [[nodiscard]] std::uint32_t running() const noexcept { return static_cast<std::uint32_t>(workers_.size()); }
    [[nodiscard]] bool is_running(const std::string& id) const;
    [[nodiscard]] std::optional<JobIntent> intent(const std::string& id) const;
    /// Jobs that wait, the next first. All of them: for tests.
    [[nodiscard]] std::vector<std::string> queue() const { return queue_.ids(); }
    /// 1 = next; of jobs that wait.
    [[nodiscard]] std::optional<std::uint64_t> queue_position(const std::string& id) const {
        return queue_.position(id);
    }
    /// What keeps a job from what it claims; its own claims do not.
    [[nodiscard]] std::optional<ClaimConflict> conflict(const PathClaims& claims, const std::string& id = {}) const {
        return claims_.conflict(claims, id);
    }
    /// The job that has not ended and writes to this file or folder.
    [[nodiscard]] std::optional<std::string> output_user(const std::string& output) const {
        return claims_.writer_of(output);
    }
    /// Jobs that have been looked at so far, beside those that the events were about: what an event costs.
    [[nodiscard]] std::uint64_t visited() const noexcept { return visited_ + queue_.visited(); }

  private:
    enum class Mode { restoring, started, stopping };
    struct Entry {
        JobIntent intent;
        PathClaims claims;
        bool begun = false;  ///< it has had a worker, which may have written
        bool resume = false;
        bool skips_checkpoint = false;  ///< cancel: the worker was told so
        Time deadline{};                ///< wait: not started before; with a worker that is to stop: killed then
        QueuePlace place;
        RestartPolicy restarts;
        std::optional<MicroBatches> cut;  ///< since memory ran out
    };
    using Entries = std::map<std::string, Entry>;
    struct ById {
        bool operator()(Entries::iterator left, Entries::iterator right) const { return left->first < right->first; }
    };

    void order_stop(Entries::iterator job, JobWish wish, Time now, LastCheckpoint last = LastCheckpoint::write);
    /// Of a job that is to be cancelled: the order, if it was not given before.
    void order_skip(Entries::iterator job);
    void take_place(Entries::iterator job, QueuePlace place);
    void insert_into_queue(Entries::iterator job);
    void leave_queue(Entries::iterator job);
    void begin_pause(Entries::iterator job);
    void rest(Entries::iterator job, api::StatusReason reason);
    void end(Entries::iterator job, api::JobState state, std::optional<api::StatusReason> reason);
    /// Back to its place.
    void requeue(Entries::iterator job, StoreStateAction action);
    void on_out_of_memory(Entries::iterator job, const WorkerOutcome& outcome, Time now);
    void on_died(Entries::iterator job, const WorkerOutcome& outcome, Time now);
    void on_not_started(Entries::iterator job, const WorkerOutcome& outcome, Time now);
    void kill_late(Time now);
    void fill_slots(Time now);

    JobTableOptions options_;
    Mode mode_ = Mode::restoring;
    Entries jobs_;  ///< that have not ended, by id
    JobQueue queue_;
    std::set<Entries::iterator, ById> workers_;  ///< of jobs_, those that have a worker
    ClaimTable claims_;                          ///< of jobs_, and of those that have ended
    std::uint64_t newest_ = 0;                   ///< greatest number of a place that was given
    std::vector<JobAction> actions_;             ///< of events since the last poll
    std::vector<QueueChange> queue_changes_;
    mutable std::uint64_t visited_ = 0;
};

}  // namespace distilld
