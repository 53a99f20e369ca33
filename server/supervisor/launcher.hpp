#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/job_spec.hpp"
#include "base/error.hpp"
#include "server/supervisor/attempt_record.hpp"
#include "server/supervisor/slot.hpp"
#include "server/supervisor/worker_process.hpp"

namespace distilld {

/// A machine that runs workers.
struct Node {
    std::string name;
    std::string state = "idle";  ///< idle, mixed (it has room), allocated (it is full), or another word of its engine
    std::uint32_t cores = 0;
    std::uint64_t memory_mb = 0;  ///< MiB, as Slurm counts
    std::uint32_t gpus = 0;
    std::vector<std::string> jobs{};  ///< ids of the service's jobs that run there
};

/// One run of a job's worker, from its start to its end.
struct Attempt {
    std::string job_id;
    Slot slot;
    std::uint64_t number = 0;               ///< of the job's starts, from 1
    std::shared_ptr<const JobSpec> spec{};  ///< null if it is not valid: the worker says why
    /// What the service stores about it, for workers that outlive the service.
    std::shared_ptr<AttemptRecord> record{};
};

/// Starts the workers of the service, wherever they run. One executor, the manager's.
class Launcher {
  public:
    virtual ~Launcher() = default;

    /// A worker that has not been started. Throws if it cannot be made.
    virtual std::unique_ptr<WorkerProcess> make(boost::asio::any_io_executor executor, const Attempt& attempt) = 0;

    /// Whether workers go on when the service ends.
    [[nodiscard]] virtual bool outlives_service() const { return false; }
    /// A worker that an earlier run of the service has started; its record says where. Only if they outlive it.
    virtual std::unique_ptr<WorkerProcess> adopt(boost::asio::any_io_executor executor, const Attempt& attempt) {
        return make(std::move(executor), attempt);
    }
    /// The attempts to adopt are adopted.
    virtual void all_adopted() {}

    /// The machines. `running`: ids of the jobs with a worker.
    virtual boost::asio::awaitable<Result<std::vector<Node>>> nodes(std::vector<std::string> running) = 0;
    /// Jobs that could each have a machine, or a slot, to themselves now: here, the idle machines.
    virtual boost::asio::awaitable<Result<std::uint32_t>> room(std::vector<std::string> running);
};

/// Makes a worker process on the given executor, for the slot of the job.
using WorkerFactory = std::function<std::unique_ptr<WorkerProcess>(boost::asio::any_io_executor, const Slot&)>;

/// Workers are children of this process. `machine` is this machine, with room for `slots` jobs.
std::unique_ptr<Launcher> make_local_launcher(Node machine, std::uint32_t slots, WorkerFactory make_worker);

}  // namespace distilld
