#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "pipeline/async/task_group.hpp"
#include "server/jobs/job_journal.hpp"
#include "server/jobs/job_manager.hpp"
#include "server/jobs/job_metrics.hpp"
#include "server/jobs/job_table.hpp"
#include "server/jobs/run_recorder.hpp"
#include "server/jobs/slot_table.hpp"

namespace distilld {

/// The jobs that have a worker, from its start to its end. What the workers say goes to the journal and the metrics.
/// One executor, on which the callbacks are called too.
class RunningJobs {
  public:
    struct Callbacks {
        std::function<void(const WorkerEvent& event)> on_event;  ///< after the journal and the metrics have it
        std::function<void(const std::string& id, const WorkerOutcome& outcome)> on_ended;
    };

    /// Of the options, which must outlive it, it takes the slots, the metrics' interval and what is asked of a spec
    /// once more when its worker is started: what a link pointed to when the job was submitted may be another thing by
    /// then. That is asked on `disk`, for it looks there.
    RunningJobs(boost::asio::any_io_executor executor, boost::asio::any_io_executor disk, WorkerFactory make_worker,
                const JobManagerOptions& options, JobJournal& journal, JobMetrics& metrics, Callbacks callbacks);

    /// Makes a worker for a queued job, which is running from here on; on_ended() follows. Why there is no worker,
    /// when it cannot be made: then the job is queued as before, and nothing follows. `cut`: into which micro-batches
    /// its steps are cut from now on, where that is not as the resolved spec has it, which is changed.
    [[nodiscard]] std::optional<WorkerOutcome> start(const std::string& id, bool resume,
                                                     const std::optional<MicroBatches>& cut = {});

    // Nothing happens to a job that has no worker (any more).
    /// Tells the worker to checkpoint and end, or to end without.
    void stop(const std::string& id, LastCheckpoint last);
    /// Tells the worker to checkpoint and go on.
    void checkpoint(const std::string& id);
    /// Ceiling of the worker's requests in flight.
    void set_limit(const std::string& id, std::uint32_t max_concurrent);
    void kill(const std::string& id);
    void kill_all();

    /// Returns when the last worker has ended; none is to be started any more.
    boost::asio::awaitable<void> join();
    /// Lets go of the workers, which kills them. After the executor's thread has ended.
    void clear() { active_.clear(); }

  private:
    struct Active {
        std::unique_ptr<WorkerProcess> worker;
        RunRecorder run;
    };
    void send(const std::string& id, const WorkerCommand& command);
    boost::asio::awaitable<void> run_job(std::string id, std::shared_ptr<Active> active, WorkerStart start,
                                         std::optional<JobSpec> spec);
    /// The code and text of what is wrong with the spec; else it sets what the worker may open.
    boost::asio::awaitable<std::optional<FailedEvent>> judge(JobSpec spec, WorkerStart& start);
    void free_slot(const std::string& id);

    boost::asio::any_io_executor executor_;
    boost::asio::any_io_executor disk_;
    WorkerFactory make_worker_;
    const JobManagerOptions& options_;
    JobJournal& journal_;
    JobMetrics& metrics_;
    Callbacks callbacks_;
    SlotTable slots_;
    std::map<std::string, std::shared_ptr<Active>> active_;
    TaskGroup runs_;  ///< run_job() of each of active_
};

}  // namespace distilld
