#pragma once

#include <boost/asio/io_context.hpp>
#include <filesystem>
#include <functional>
#include <memory>

#include "server/jobs/job_manager_core.hpp"
#include "server/supervisor/remote_attempts.hpp"
#include "tests/simulation/cluster_network.hpp"
#include "tests/simulation/cluster_slurm.hpp"
#include "tests/simulation/cluster_stage.hpp"
#include "tests/simulation/cluster_store.hpp"

namespace distilld::test {

/// What a service finds on its machine.
struct ServiceSurroundings {
    StoreDisk& disk;
    Network& network;
    SimulatedSlurm& slurm;
    std::filesystem::path programs;  ///< folder with Slurm's commands, which are not run
    std::filesystem::path tokens;    ///< launcher.folder
};

/// One run of the service: the core of the product's manager with the Slurm launcher.
class ServiceProcess final : public Process {
  public:
    ServiceProcess(Stage& stage, ServiceSurroundings around, std::function<void()> on_exit);
    ~ServiceProcess() override;

    /// After it is owned by a shared_ptr.
    void start();
    /// SIGTERM: it leaves its workers alone.
    void terminate();
    [[nodiscard]] boost::asio::io_context& io() override { return core_->io; }
    [[nodiscard]] JobManager::Core& core() { return *core_; }

  private:
    void on_kill() override;

    ServiceSurroundings around_;
    std::function<void()> on_exit_;
    RemoteAttempts attempts_;
    std::unique_ptr<JobManager::Core> core_;
};

}  // namespace distilld::test
