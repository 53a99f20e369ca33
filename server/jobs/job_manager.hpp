#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/job_types.hpp"
#include "server/jobs/job_answers.hpp"
#include "server/jobs/job_manager_options.hpp"
#include "server/jobs/job_patch.hpp"
#include "server/jobs/job_verbs.hpp"
#include "server/jobs/metrics/job_metrics.hpp"
#include "server/jobs/metrics/metric_series.hpp"
#include "server/jobs/store/job_store.hpp"
#include "server/jobs/table/live_jobs.hpp"
#include "server/supervisor/launcher.hpp"

namespace distilld {

/// Owns the queue, the store and the running workers, on one thread of its own, so that neither a slow disk nor a
/// worker holds up the HTTP thread. What only reads is answered by two other threads, which wait for no write. All
/// functions may be called from any thread; the coroutines run on the caller's executor, hand the work to the manager's
/// thread and come back. Failures of the store come out as ErrorException.
///
/// Destroy it after the callers' coroutines have ended. Destroying a manager that was not stopped kills its workers;
/// their jobs go on at the next start.
class JobManager {
  public:
    JobManager(JobManagerOptions options, std::unique_ptr<JobStore> store, std::unique_ptr<Launcher> launcher,
               std::shared_ptr<JobMetrics> metrics);
    ~JobManager();
    JobManager(const JobManager&) = delete;
    JobManager& operator=(const JobManager&) = delete;

    // --- job_manager_core.cpp ---
    /// Puts the jobs that ran when the service last ended back into the queue (to be resumed) and starts work.
    boost::asio::awaitable<void> start();

    /// Takes no more jobs. Workers that outlive the service go on. Otherwise cancels the running jobs with a
    /// checkpoint, puts them back into the queue and returns when their workers have ended. Workers that still run at
    /// the stop limit are killed.
    boost::asio::awaitable<void> stop();

    /// Returns when the manager's thread has had a turn: it is not stuck.
    boost::asio::awaitable<void> answer();

    /// True from the end of start() to the begin of stop(). Tries a write, as submit() does: afterwards store_trouble()
    /// says whether submit() would fail.
    boost::asio::awaitable<bool> ready();

    /// The machines that run workers, and which jobs.
    boost::asio::awaitable<Result<std::vector<Node>>> nodes();

    /// Why and since when (`since`) jobs cannot be stored; nullopt: they can be. Meanwhile events of existing jobs wait
    /// in memory, and submit() fails. Does not wait for the disk.
    [[nodiscard]] std::optional<api::StatusReason> store_trouble() const;

    // --- job_commands.cpp ---
    boost::asio::awaitable<JobOutcome> submit(SubmitRequest request);
    /// `option` is the verb's option.
    boost::asio::awaitable<JobOutcome> command(std::string id, JobVerb verb, bool option = true);
    /// Applies the whole patch or nothing.
    boost::asio::awaitable<JobOutcome> change(std::string id, JobPatch patch);
    /// Removes a job that has ended (else not_terminal) and its history from the store; with task 0 of several, all of
    /// them. Their files stay. `job.tasks` of the outcome: what was removed.
    boost::asio::awaitable<JobOutcome> remove(std::string id);

    // --- job_events.cpp ---
    boost::asio::awaitable<std::optional<api::Job>> get(std::string id);
    /// Tells cheaply whether get() would answer as before. Does not wait.
    [[nodiscard]] JobVersion version_of(const std::string& id) const;
    boost::asio::awaitable<JobListing> list(JobQuery query);

    /// The series measured during the job; nullopt: no such job. Reads all stored events, on a thread of its own.
    boost::asio::awaitable<std::optional<std::vector<MetricSeries>>> metrics(std::string id, SeriesQuery query);

    /// All checkpoints that the job has written, oldest first; nullopt: no such job.
    boost::asio::awaitable<std::optional<std::vector<api::JobCheckpoint>>> checkpoints(std::string id);

    /// Stored events after `after`, without waiting; `ended` and `job` are not set.
    boost::asio::awaitable<EventBatch> events(std::string id, std::uint64_t after, std::uint32_t limit);

    /// Stored events before `before`, newest first, without waiting; `ended` and `job` are not set.
    boost::asio::awaitable<EventBatch> events_before(std::string id, std::uint64_t before, std::uint32_t limit);

    /// As events(), but waits up to the heartbeat for the first. A slow reader reads later and blocks nobody: events
    /// wait in the store, not in memory.
    boost::asio::awaitable<EventBatch> wait_events(std::string id, std::uint64_t after, std::uint32_t limit);

    struct Core;  // job_manager_core.hpp

  private:
    std::unique_ptr<Core> core_;
};

}  // namespace distilld
