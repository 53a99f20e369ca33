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

#include "api/job_spec_json.hpp"
#include "api/job_types.hpp"
#include "server/jobs/job_metrics.hpp"
#include "server/jobs/job_store.hpp"
#include "server/jobs/job_table.hpp"
#include "server/jobs/metric_series.hpp"
#include "server/supervisor/worker_process.hpp"

namespace distilld {

struct JobManagerOptions {
    std::filesystem::path working_directory;          ///< relative paths of specs start here; must be absolute
    std::uint32_t slots = 1;                          ///< jobs that run at once
    std::chrono::milliseconds metrics_interval{500};  ///< shortest time between two stored metrics events of a job
    std::uint32_t metrics_kept = 20000;               ///< stored metrics events of a job, about
    std::chrono::seconds cancel_grace{120};           ///< between the cancel command and the worker's end by force
    std::chrono::milliseconds heartbeat{10000};       ///< longest wait of wait_events()
    std::chrono::hours idempotency_lifetime{24};
    std::chrono::milliseconds store_retry{1000};  ///< between tries to write to a store that refused
    std::uint32_t max_queued = 10000;             ///< jobs that wait; more are refused
    RestartLimits restarts{};                     ///< of workers that die or cannot be started
};

/// Makes a worker process on the executor given (the manager's).
using WorkerFactory = std::function<std::unique_ptr<WorkerProcess>(boost::asio::any_io_executor)>;

/// Answer to submit().
struct SubmitOutcome {
    /// created: `job` is queued. existing: `job` was made before by a request with the same key and body. valid: `job`
    /// is what would be queued, without an id. invalid: `violations` of the spec, or what it names is not there.
    /// conflict: `violations`: another job that has not ended writes to the same output folder. queue_full: as many
    /// wait as may.
    using Kind = SubmitVerdict;
    Kind kind = Kind::invalid;
    api::Job job;
    api::SpecViolations violations;
};

struct SubmitRequest {
    std::string spec_json;
    std::string idempotency_key;  ///< empty = none
    bool dry_run = false;
    std::string owner{};                            ///< who submits; empty = nobody said
    std::map<std::string, std::string> metadata{};  ///< kept with the job as it is
};

/// Answer to cancel().
struct CancelOutcome {
    enum class Kind { accepted, not_found, terminal };
    Kind kind = Kind::not_found;
    api::Job job;
};

/// Answer to remove().
struct RemoveOutcome {
    enum class Kind { removed, not_found, not_ended };
    Kind kind = Kind::not_found;
    api::JobState state = api::JobState::queued;  ///< not_ended: which it is in
};

struct JobListing {
    std::vector<api::Job> jobs;  ///< newest first
    bool has_more = false;
    bool unknown_after = false;  ///< `after` names no job
};

/// What happened after a sequence number.
struct EventBatch {
    bool found = true;                  ///< false: no such job
    std::vector<api::JobEvent> events;  ///< ascending; empty: nothing new within the heartbeat
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
    /// their workers have ended.
    virtual boost::asio::awaitable<void> stop() = 0;

    /// True from the end of start() to the begin of stop(). Asks the store for a write, as submit() does, so that
    /// store_trouble() says afterwards what submit() would find.
    virtual boost::asio::awaitable<bool> ready() = 0;

    /// Why jobs cannot be stored (`since` when): what happens to those that are there waits in memory, and submit()
    /// fails. Nothing: they can. At once, whatever the disk does.
    [[nodiscard]] virtual std::optional<api::StatusReason> store_trouble() const = 0;

    virtual boost::asio::awaitable<SubmitOutcome> submit(SubmitRequest request) = 0;
    virtual boost::asio::awaitable<std::optional<api::Job>> get(std::string id) = 0;
    virtual boost::asio::awaitable<JobListing> list(JobQuery query) = 0;

    /// Queued: cancelled at once. Running: asked to checkpoint and end, cancelled when it has. Asking again is no
    /// error.
    virtual boost::asio::awaitable<CancelOutcome> cancel(std::string id) = 0;

    /// Removes a job that has ended from the store, with its history. Its files stay.
    virtual boost::asio::awaitable<RemoveOutcome> remove(std::string id) = 0;

    /// What was measured in the course of the job; nothing: there is no such job. Reads all that is stored of it, on a
    /// thread that has nothing else to do.
    virtual boost::asio::awaitable<std::optional<std::vector<MetricSeries>>> metrics(std::string id,
                                                                                     SeriesQuery query) = 0;

    /// Stored events after `after`, at once.
    virtual boost::asio::awaitable<EventBatch> events(std::string id, std::uint64_t after, std::uint32_t limit) = 0;

    /// The same, but waits up to the heartbeat for the first. A reader that is slow reads later and holds up nobody:
    /// events wait in the store, not in memory.
    virtual boost::asio::awaitable<EventBatch> wait_events(std::string id, std::uint64_t after,
                                                           std::uint32_t limit) = 0;
};

std::unique_ptr<JobManager> make_job_manager(JobManagerOptions options, std::unique_ptr<JobStore> store,
                                             WorkerFactory make_worker, std::shared_ptr<JobMetrics> metrics);

}  // namespace distilld
