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
#include <vector>

#include "pipeline/async/task_group.hpp"
#include "server/jobs/job_manager_options.hpp"
#include "server/jobs/metrics/job_metrics.hpp"
#include "server/jobs/run_recorder.hpp"
#include "server/jobs/store/job_journal.hpp"
#include "server/jobs/table/job_table.hpp"
#include "server/jobs/table/slot_table.hpp"
#include "server/supervisor/launcher.hpp"

namespace distilld {

/// The jobs that have a worker, from its start to its end. The workers' events go to the journal and the metrics. One
/// executor, on which the callbacks are called too.
class RunningJobs {
  public:
    struct Callbacks {
        /// Called after the journal and the metrics have it.
        std::function<void(const std::string& id, const WorkerEvent& event)> on_event;
        std::function<void(const std::string& id, const WorkerOutcome& outcome)> on_ended;
    };

    /// Uses the slots, the metrics' interval and the policies of the options, which must outlive it as the launcher. It
    /// judges a spec again when its worker is started, because a link may lead elsewhere than at submission. That runs
    /// on `disk`, because it reads the disk.
    RunningJobs(boost::asio::any_io_executor executor, boost::asio::any_io_executor disk, Launcher& launcher,
                const JobManagerOptions& options, JobJournal& journal, JobMetrics& metrics, Callbacks callbacks);

    /// Starts a worker for a queued job, which is running from here on; on_ended() follows. If the worker cannot be
    /// made, returns why: the job stays queued, and nothing follows. `cut` replaces how the resolved spec divides a
    /// step into micro-batches; the spec is changed accordingly.
    [[nodiscard]] std::optional<WorkerOutcome> start(const std::string& id, bool resume,
                                                     const std::optional<MicroBatches>& split = {});

    /// Takes over the worker of a running job, which an earlier run of the service has started; on_ended() follows. As
    /// start() if it cannot.
    [[nodiscard]] std::optional<WorkerOutcome> adopt(const std::string& id);

    /// Of the jobs with a worker.
    [[nodiscard]] std::vector<std::string> ids() const;

    // Does nothing for a job without a worker.
    void tell(const std::string& id, const WorkerCommand& order);
    void kill(const std::string& id);
    void kill_all();

    /// Returns when the last worker has ended; start() must not be called any more.
    boost::asio::awaitable<void> join();
    /// Releases the workers, which kills them. Call after the executor's thread has ended.
    void clear() { active_.clear(); }

  private:
    struct Active {
        std::unique_ptr<WorkerProcess> worker;
        RunRecorder run;
    };
    /// The order for a worker, from the journal.
    [[nodiscard]] WorkerStart order_of(const std::string& id, bool resume);
    /// Makes the worker and its entry in active_; an outcome if it cannot.
    std::optional<WorkerOutcome> make_active(const WorkerStart& start, bool adopted);
    boost::asio::awaitable<void> run_job(std::string id, std::shared_ptr<Active> active, WorkerStart start);
    /// The code and text of what is wrong with the spec; otherwise sets what the worker may open.
    boost::asio::awaitable<std::optional<FailedEvent>> judge(WorkerStart& start);
    void show_slots();
    void free_slot(const std::string& id);

    boost::asio::any_io_executor executor_;
    boost::asio::any_io_executor disk_;
    Launcher& launcher_;
    const JobManagerOptions& options_;
    JobJournal& journal_;
    JobMetrics& metrics_;
    Callbacks callbacks_;
    SlotTable slots_;
    std::map<std::string, std::shared_ptr<Active>> active_;
    TaskGroup runs_;  ///< one run_job() per entry of active_
};

}  // namespace distilld
