#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/caller.hpp"
#include "api/job_spec_json.hpp"
#include "api/job_types.hpp"
#include "base/file_rule.hpp"
#include "pipeline/core/job_spec.hpp"
#include "server/jobs/job_board.hpp"
#include "server/jobs/job_metrics.hpp"
#include "server/jobs/job_patch.hpp"
#include "server/jobs/job_store.hpp"
#include "server/jobs/job_table.hpp"
#include "server/jobs/metric_series.hpp"
#include "server/jobs/slot_table.hpp"
#include "server/settings/service_settings.hpp"
#include "server/supervisor/worker_process.hpp"

namespace distilld {

/// What the operator does not allow of a spec, whose paths are absolute. Blocks; any thread, several at once.
using Admission = std::function<api::SpecViolations(const JobSpec&)>;

struct JobManagerOptions : JobsSettings {
    JobManagerOptions() { slots = 1; }
    explicit JobManagerOptions(JobsSettings settings) : JobsSettings(std::move(settings)) {}

    std::filesystem::path working_directory;  ///< relative paths of specs start here; must be absolute
    std::vector<Slot> places{};               ///< one for each of `slots`; empty = they share the machine
    std::chrono::milliseconds stop_limit{std::chrono::seconds(270)};   ///< of stop(): what runs then is killed
    std::chrono::milliseconds heartbeat = ServerSettings{}.heartbeat;  ///< longest wait of wait_events()
    /// Of workers that die or cannot be started.
    RestartLimits restarts{.max_restarts = max_worker_restarts, .max_oom_restarts = max_oom_restarts};
    /// Asked before anything that a spec names is looked at. Empty: everything is allowed.
    Admission admit{};
    /// The same of a job that was taken before, whose spec may name what the service has put into it.
    Admission admit_again{};
    /// Which files may be opened for a spec that is admitted; none: any.
    std::function<std::optional<FileRule>(const JobSpec&)> files{};
};

/// Makes a worker process on the executor given (the manager's), for the slot that its job has.
using WorkerFactory = std::function<std::unique_ptr<WorkerProcess>(boost::asio::any_io_executor, const Slot&)>;

struct SubmitRequest {
    std::string spec_json;
    std::string idempotency_key;  ///< empty = none
    bool dry_run = false;
    std::optional<api::Caller> owner{};             ///< who submits; nothing: nobody said
    std::map<std::string, std::string> metadata{};  ///< kept with the job as it is
    std::int32_t priority = 0;                      ///< api::kLowestPriority to api::kHighestPriority
    std::string id{};                               ///< of the job that is made, make_job_id(); empty = the manager's
    std::vector<std::string> own_paths{};  ///< pointers of what the service has put into the spec: nobody named it
    /// See api::Job. A request with a key is the same as an earlier one when this is, or without it the spec.
    std::string asked_json{};
    bool is_admin = false;  ///< the owner may write where jobs of others have written
};

/// Answer to what a client asks. `job` is the job as it is then, except where there is none; of a valid submission what
/// would be queued, without an id.
struct JobOutcome {
    JobVerdict kind = JobVerdict::not_found;
    api::Job job{};
    api::SpecViolations violations{};  ///< of an invalid change or spec, and of places that are taken
};

struct JobListing {
    std::vector<api::Job> jobs;  ///< newest first
    bool has_more = false;
    bool unknown_after = false;  ///< `after` names no job
};

/// What happened after a sequence number.
struct EventBatch {
    bool found = true;                  ///< false: no such job
    std::vector<api::JobEvent> events;  ///< as was asked for; empty: nothing new within the heartbeat
    bool has_more = false;
    bool ended = false;           ///< no event will follow: the job is terminal (`job`) or the service stops
    std::optional<api::Job> job;  ///< set when the job is terminal and all its events have been read
};

/// Owns the queue, the store and the running workers, on one thread of its own, so that neither a slow disk nor a
/// worker holds up the HTTP thread; get(), list() and events() are answered by another, which waits for no write. All
/// functions may be called from any thread; the coroutines run on the caller's executor, hand the work to the manager's
/// thread and come back. Failures of the store come out as ErrorException.
///
/// Destroy it after the callers' coroutines have ended. Destroying a manager that was not stopped kills its workers;
/// their jobs go on at the next start.
class JobManager {
  public:
    virtual ~JobManager() = default;

    /// Puts jobs that were running when the service last ended back to the queue (to be resumed) and starts work.
    virtual boost::asio::awaitable<void> start() = 0;

    /// Takes no more jobs, cancels the running ones with a checkpoint, puts them back to the queue and returns once
    /// their workers have ended. Workers that have not by the stop limit are killed.
    virtual boost::asio::awaitable<void> stop() = 0;

    /// Comes back when the manager's thread has had a turn: it is not stuck.
    virtual boost::asio::awaitable<void> answer() = 0;

    /// True from the end of start() to the begin of stop(). Asks the store for a write, as submit() does, so that
    /// store_trouble() says afterwards what submit() would find.
    virtual boost::asio::awaitable<bool> ready() = 0;

    /// Why jobs cannot be stored (`since` when): what happens to those that are there waits in memory, and submit()
    /// fails. Nothing: they can. At once, whatever the disk does.
    [[nodiscard]] virtual std::optional<api::StatusReason> store_trouble() const = 0;

    virtual boost::asio::awaitable<JobOutcome> submit(SubmitRequest request) = 0;
    virtual boost::asio::awaitable<std::optional<api::Job>> get(std::string id) = 0;
    /// Whether get() would say what it said before, at a small part of what that costs. At once.
    [[nodiscard]] virtual JobVersion version_of(const std::string& id) const = 0;
    virtual boost::asio::awaitable<JobListing> list(JobQuery query) = 0;

    // --- what a user asks of a job; asking again is no error ---
    /// Queued and paused: cancelled at once. Running: asked to end, after a checkpoint unless `last` says otherwise,
    /// and cancelled when it has.
    virtual boost::asio::awaitable<JobOutcome> cancel(std::string id, LastCheckpoint last = LastCheckpoint::write) = 0;
    /// Queued: paused at once. Running: asked to checkpoint and end, paused when it has.
    virtual boost::asio::awaitable<JobOutcome> pause(std::string id) = 0;
    /// Paused, failed or cancelled: back to its place in the queue, to go on from its newest checkpoint.
    virtual boost::asio::awaitable<JobOutcome> resume(std::string id) = 0;
    /// Running: a checkpoint at the next step boundary.
    virtual boost::asio::awaitable<JobOutcome> checkpoint(std::string id) = 0;
    /// All of the patch or nothing.
    virtual boost::asio::awaitable<JobOutcome> change(std::string id, JobPatch patch) = 0;

    /// Removes a job that has ended (else not_terminal) from the store, with its history. Its files stay.
    virtual boost::asio::awaitable<JobOutcome> remove(std::string id) = 0;

    /// What was measured in the course of the job; nothing: there is no such job. Reads all that is stored of it, on a
    /// thread that has nothing else to do.
    virtual boost::asio::awaitable<std::optional<std::vector<MetricSeries>>> metrics(std::string id,
                                                                                     SeriesQuery query) = 0;

    /// All that the job has written, oldest first; nothing: there is no such job.
    virtual boost::asio::awaitable<std::optional<std::vector<api::JobCheckpoint>>> checkpoints(std::string id) = 0;

    /// Stored events after `after`, at once.
    virtual boost::asio::awaitable<EventBatch> events(std::string id, std::uint64_t after, std::uint32_t limit) = 0;

    /// Stored events before `before`, at once, newest first; without `ended` and `job`.
    virtual boost::asio::awaitable<EventBatch> events_before(std::string id, std::uint64_t before,
                                                             std::uint32_t limit) = 0;

    /// The same as events(), but waits up to the heartbeat for the first. A reader that is slow reads later and holds
    /// up nobody: events wait in the store, not in memory.
    virtual boost::asio::awaitable<EventBatch> wait_events(std::string id, std::uint64_t after,
                                                           std::uint32_t limit) = 0;
};

std::unique_ptr<JobManager> make_job_manager(JobManagerOptions options, std::unique_ptr<JobStore> store,
                                             WorkerFactory make_worker, std::shared_ptr<JobMetrics> metrics);

}  // namespace distilld
