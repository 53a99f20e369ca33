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
#include "pipeline/core/worker_events.hpp"
#include "server/jobs/checks/path_claims.hpp"
#include "server/jobs/table/job_intent.hpp"
#include "server/jobs/table/job_queue.hpp"
#include "server/jobs/table/job_verdict.hpp"
#include "server/supervisor/restart_policy.hpp"

namespace distilld {

/// A submission, and what is known about it.
struct JobSubmission {
    bool dry_run = false;
    /// Set when a job with the same idempotency key was submitted before and is still remembered.
    struct Earlier {
        bool same_body = false;
    };
    std::optional<Earlier> earlier;
    std::optional<PathClaims> claims;  ///< empty = the spec is invalid
    std::size_t tasks = 1;             ///< jobs that it makes
};

/// Run a worker for the job, which is `running` from here on. Answer with on_ended() when the worker has ended or
/// cannot be made.
struct StartWorkerAction {
    std::string id;
    bool resume = false;
    std::optional<MicroBatches> split{};  ///< overrides the spec
};
/// The job's worker has outlived the service: take it over. Answer as to a start.
struct AdoptWorkerAction {
    std::string id;
};
/// Give the worker an order. An order to end without a checkpoint may follow one to end with a checkpoint.
struct TellWorkerAction {
    std::string id;
    WorkerCommand order;
};
/// End the worker by force.
struct KillWorkerAction {
    std::string id;
};
/// The job has reached a state: store it, append it to the job's history, wake its readers. Nothing follows a terminal
/// state, unless the job is enqueued again.
struct StoreStateAction {
    std::string id;
    api::JobState state = api::JobState::queued;
    std::optional<api::StatusReason> reason;
    bool resume = false;  ///< not terminal: the next run resumes from the newest checkpoint
    bool waits = false;   ///< queued: until `reason` has passed; the code that stores it adds the time
};
/// The job runs until its worker has stopped: store that its end was requested, append that to the history.
struct StoreCancelRequestAction {
    std::string id;
};
/// A request of the user: append it to the job's history.
struct StoreNoteAction {
    std::string id;
    std::string message;
};
/// The service stops: wake every reader.
struct WakeReadersAction {};

using JobAction = std::variant<StartWorkerAction, AdoptWorkerAction, TellWorkerAction, KillWorkerAction,
                               StoreStateAction, StoreCancelRequestAction, StoreNoteAction, WakeReadersAction>;

struct JobTableOptions {
    std::uint32_t slots = 1;                  ///< jobs that run at once
    std::chrono::nanoseconds cancel_grace{};  ///< between the order to stop and the kill
    RestartLimits restarts{};
    std::chrono::nanoseconds stop_grace{};  ///< the same when the service stops; 0 = cancel_grace
    std::size_t max_queued = SIZE_MAX;      ///< most waiting jobs; further ones are refused
};

/// A job as found in the store when the service starts.
struct RestoredJob {
    std::string id;
    PathClaims claims;
    bool running = false;  ///< it ran when the service ended without recording its end
    bool cancel_requested = false;
    bool resume = false;
    bool paused = false;  ///< it is paused or, if it was running, was about to be
    QueuePlace place{};
    bool begun = false;    ///< it has had a worker
    bool adopted = false;  ///< running: its worker has outlived the service
    bool resumed = false;  ///< adopted: a pause was withdrawn, and the worker stops for it
    bool held = false;     ///< it waited for a store
    /// Of a task: the first one of its array has ended so.
    std::optional<api::JobState> first_ended{};
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
    /// Before start(), oldest job first. `now`: of the orders that a worker gets again.
    void restore(const RestoredJob& job, Time now = {});
    /// Before start(): a job that has ended, and what it may have written.
    void restore_ended(const std::string& id, const PathClaims& claims);
    /// The job is deleted: what it has written no longer has an owner.
    void forget(const std::string& id) { claims_.forget(id); }
    /// Jobs may run from now on.
    void start();
    /// No more jobs are taken or started; running jobs are to stop and to resume at the next start, unless their
    /// workers outlive the service.
    void stop(Time now, bool workers_go_on = false);
    /// created, existing, valid, or a refusal.
    [[nodiscard]] JobVerdict judge(const JobSubmission& submission) const;
    /// The job is on disk and waits for its turn; a job that had ended resumes with `resume`.
    void enqueue(const std::string& id, const PathClaims& claims, QueuePlace place = {}, bool resume = false);
    /// Links may lead elsewhere since submission: replaces the job's claims if they are free. Otherwise returns the
    /// conflict and changes nothing.
    std::optional<ClaimConflict> claim_again(const std::string& id, const std::vector<PathClaim>& paths);
    /// True: it will end (or has). False: no such job, or it had ended before.
    bool cancel(const std::string& id, Time now, LastCheckpoint last = LastCheckpoint::write);
    // accepted, cancelling, not_running, or not_found: there is no such job, or it has ended
    /// The job gives up its worker and its turn until it is resumed.
    JobVerdict pause(const std::string& id, Time now);
    /// The job returns to its place in the queue, now or when its worker has ended.
    JobVerdict resume(const std::string& id);
    /// Gives its worker an order other than to stop; `note` goes to the job's history.
    JobVerdict tell(const std::string& id, WorkerCommand order, std::string note);
    /// The other tasks of its array that have not ended, if this is the first one.
    [[nodiscard]] std::vector<std::string> tasks_of(const std::string& id) const;
    /// False: there is no such job.
    bool set_priority(const std::string& id, std::int32_t priority);
    /// If the worker died or could not be started, the job returns to its place in the queue. There it waits for a
    /// while (RestartPolicy) and blocks those behind it, which the same fault would hit.
    void on_ended(const std::string& id, const WorkerOutcome& outcome, Time now);

    /// The first shard of the store that the job writes is sealed: those that wait for it may run. False: that was
    /// known, or there is no such job.
    bool on_sealed(const std::string& id);

    // --- actions ---
    [[nodiscard]] std::vector<JobAction> poll(Time now);
    /// When there will be work even without an event.
    [[nodiscard]] std::optional<Time> next_wakeup() const;
    /// Jobs that entered or left the queue since the last call, in order, for a display of the queue.
    [[nodiscard]] std::vector<QueueChange> take_queue_changes() { return std::exchange(queue_changes_, {}); }

    // --- state ---
    [[nodiscard]] bool stopping() const noexcept { return mode_ == Mode::stopping; }
    [[nodiscard]] std::uint32_t running() const noexcept { return static_cast<std::uint32_t>(workers_.size()); }
    [[nodiscard]] bool is_running(const std::string& id) const;
    [[nodiscard]] std::optional<JobIntent> intent(const std::string& id) const;
    /// Jobs that wait for a slot, the next first. All of them: for tests.
    [[nodiscard]] std::vector<std::string> queue() const { return queue_.ids(); }
    /// 1 = next; for waiting jobs.
    [[nodiscard]] std::optional<std::uint64_t> queue_position(const std::string& id) const {
        return queue_.position(id);
    }
    /// What conflicts with a job's claims; its own claims do not.
    [[nodiscard]] std::optional<ClaimConflict> conflict(const PathClaims& claims, const std::string& id = {}) const {
        return claims_.conflict(claims, id);
    }
    /// Jobs that were looked at so far, besides the subjects of the events: the cost of an event.
    [[nodiscard]] std::uint64_t visited() const noexcept { return visited_ + queue_.visited(); }

  private:
    enum class Mode { restoring, started, stopping };
    struct Entry {
        JobIntent intent;
        PathClaims claims;
        bool begun = false;  ///< it has had a worker, which may have written
        bool resume = false;
        bool skips_checkpoint = false;  ///< cancel: the worker was told to skip it
        Time deadline{};                ///< waiting: do not start before; stopping: kill then
        QueuePlace place;
        RestartPolicy restarts;
        std::optional<MicroBatches> split;              ///< set after memory ran out
        bool sealed = false;                            ///< a shard of the store that it writes is sealed
        std::optional<api::StatusReason> ended_with{};  ///< told to stop because the first task has ended so
    };
    using Entries = std::map<std::string, Entry>;
    struct ById {
        bool operator()(Entries::iterator left, Entries::iterator right) const { return left->first < right->first; }
    };

    void adopt(Entries::iterator job, const RestoredJob& restored, Time now);
    void order_stop(Entries::iterator job, JobWish wish, Time now, LastCheckpoint last = LastCheckpoint::write);
    /// For a job to be cancelled: gives the order if it was not given before.
    void order_skip(Entries::iterator job);
    void join_array(Entries::iterator job);
    void take_place(Entries::iterator job, QueuePlace place);
    void insert_into_queue(Entries::iterator job);
    void leave_queue(Entries::iterator job);
    /// The claim to a store that a job is to fill before this one can begin, and that job (of an array, the first).
    [[nodiscard]] std::optional<std::pair<std::string, std::string>> awaited(Entries::iterator job) const;
    /// Outside of the queue, until the other job has sealed a shard or has ended.
    void hold(Entries::iterator job, const std::pair<std::string, std::string>& store_and_maker);
    /// Puts held jobs that need not wait any more into their places.
    void release_held();
    void hold_queued();
    void begin_pause(Entries::iterator job);
    void rest(Entries::iterator job, api::StatusReason reason);
    void end(Entries::iterator job, api::JobState state, std::optional<api::StatusReason> reason, Time now);
    /// The first task of an array has ended: the other one does too, unless its worker finds nothing left by itself.
    void end_with_first(Entries::iterator job, api::JobState state, const api::StatusReason& reason, Time now);
    /// Puts the job back into its place.
    void requeue(Entries::iterator job, StoreStateAction action);
    void on_died(Entries::iterator job, const WorkerOutcome& outcome, Time now);
    void on_not_started(Entries::iterator job, const WorkerOutcome& outcome, Time now);
    void kill_late(Time now);
    void fill_slots(Time now);

    JobTableOptions options_;
    Mode mode_ = Mode::restoring;
    Entries jobs_;  ///< by id; those that have not ended
    JobQueue queue_;
    std::set<Entries::iterator, ById> workers_;            ///< entries of jobs_ that have a worker
    std::map<Entries::iterator, std::string, ById> held_;  ///< waiting, but not in queue_; for which job
    ClaimTable claims_;                                    ///< of jobs_, and of ended jobs
    std::map<std::string, std::set<std::string>> arrays_;  ///< tasks in jobs_, by the id of the first one
    std::uint64_t newest_ = 0;                             ///< greatest number of a place so far
    std::vector<JobAction> actions_;                       ///< since the last poll
    std::vector<QueueChange> queue_changes_;
    mutable std::uint64_t visited_ = 0;
};

}  // namespace distilld
