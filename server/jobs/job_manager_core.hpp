#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "pipeline/async/run_on.hpp"
#include "pipeline/async/task_group.hpp"
#include "server/jobs/event_waiters.hpp"
#include "server/jobs/job_manager.hpp"
#include "server/jobs/running_jobs.hpp"
#include "server/jobs/store/job_journal.hpp"
#include "server/jobs/table/job_table.hpp"

namespace distilld {

/// A submitted spec, and all that the disk says about it.
struct PreparedSpec {
    std::shared_ptr<const JobSpec> spec;  ///< its paths are absolute; null: `violations` say why
    std::vector<PathClaim> claims;
    /// What the operator does not allow, and named files that are missing or must not be opened.
    api::SpecViolations violations;
};

/// The parts of a JobManager, and its work on its own thread: it carries out what the JobTable decides. Only the
/// manager's three files use it, and a simulation, which runs `io` itself. All members but the constants and the
/// readers belong to the manager's thread.
struct JobManager::Core {
    Core(JobManagerOptions options_in, std::unique_ptr<JobStore> store, std::unique_ptr<Launcher> launcher_in,
         std::shared_ptr<JobMetrics> metrics_in);
    ~Core();
    Core(const Core&) = delete;
    Core& operator=(const Core&) = delete;

    /// Runs `function` on the manager's thread; the caller resumes on its own executor.
    template <class Function>
    boost::asio::awaitable<std::invoke_result_t<Function>> on_thread(Function function) {
        return run_on(io.get_executor(), std::move(function));
    }

    // --- job_manager_core.cpp ---
    /// Runs `io` on a thread of its own, until this is destroyed.
    void begin_thread();
    void start();
    boost::asio::awaitable<void> stop();
    bool is_ready();
    boost::asio::awaitable<Result<std::vector<Node>>> nodes() { return launcher->nodes(running.ids()); }
    boost::asio::awaitable<Result<std::uint32_t>> room() { return launcher->room(running.ids()); }
    /// Keeps the metrics of the nodes up to date until it is cancelled.
    boost::asio::awaitable<void> watch_nodes();
    /// Carries out all that is due, and schedules itself for later work.
    void pump();

    /// Adds to the job's history.
    void append(const std::string& id, api::JobEvent event);
    /// Gives the metrics the counts of the jobs and the store.
    void show_counts();
    /// Call after any possible write: what the store refused is tried again later.
    void retry_later();
    /// Calls `write`, which writes at once. The caller gets its failure (ErrorException) as well.
    template <class Write>
    void written(Write write) {
        try {
            write();
        } catch (const ErrorException&) {
            show_counts();
            retry_later();
            throw;
        }
    }

    // --- job_commands.cpp ---
    // Outcomes carry no job, except those of a submission. ErrorException when the store cannot be read, or when a
    // write that the answer confirms fails.
    JobOutcome submit(const SubmitRequest& request, PreparedSpec prepared);
    JobOutcome command(const std::string& id, const JobVerb& verb, bool option, PreparedSpec prepared);
    /// The spec to prepare for an ended job that is to go on; nullopt: it needs none.
    std::optional<std::string> spec_to_prepare(const std::string& id);
    JobOutcome revive(const std::string& id, PreparedSpec prepared);
    /// Queues a job that has ended again.
    void revive_one(const std::string& id, const PathClaims& claims, std::shared_ptr<const JobSpec> spec);
    JobOutcome change(const std::string& id, const JobPatch& patch);
    void apply(const std::string& id, const JobPatch& patch);
    JobOutcome remove(const std::string& id);

    // --- job_events.cpp ---
    boost::asio::awaitable<EventBatch> wait_events(std::string id, std::uint64_t after, std::uint32_t limit);
    EventBatch read_events(const std::string& id, std::uint64_t after, std::uint32_t limit);
    // On the readers' threads.
    std::optional<api::Job> get(const std::string& id);
    JobListing list(const JobQuery& query);
    std::optional<std::vector<api::JobCheckpoint>> checkpoints(const std::string& id);
    std::optional<std::vector<MetricSeries>> measurements(const std::string& id, const SeriesQuery& query);
    EventBatch batch_of(const std::string& id, EventPage page);

    const JobManagerOptions options;
    const std::unique_ptr<Launcher> launcher;
    JobJournal journal;
    std::shared_ptr<JobMetrics> metrics;
    std::unique_ptr<JobReader> reader;          ///< reading_thread's
    std::unique_ptr<JobReader> history_reader;  ///< history_thread's
    boost::asio::thread_pool reading_thread{1};
    boost::asio::thread_pool history_thread{1};  ///< for slow reads, so that they do not delay questions about a state
    JobTable table;
    bool ready = false;
    bool pumping = false;
    bool retrying = false;
    boost::asio::io_context io{1};
    boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work;
    EventWaiters waiters;
    boost::asio::thread_pool disk{4};  ///< looks at what specs name; nothing else waits for it
    RunningJobs running;
    TaskGroup watching;
    boost::asio::steady_timer retry;
    boost::asio::steady_timer wakeup;
    std::thread thread;

  private:
    void run_thread();
    void on(const StartWorkerAction& action);
    void on(const AdoptWorkerAction& action);
    void on(const TellWorkerAction& action);
    void on(const KillWorkerAction& action);
    void on(const StoreStateAction& action);
    void on(const StoreCancelRequestAction& action);
    void on(const StoreNoteAction& action);
    void on(const WakeReadersAction& action);
    /// A failure if links now lead to places that the job may not have.
    std::optional<WorkerOutcome> kept_from_its_places(const std::string& id);
};

}  // namespace distilld
