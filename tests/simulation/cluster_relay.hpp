#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>

#include "server/supervisor/relay.hpp"
#include "tests/simulation/cluster_network.hpp"
#include "tests/simulation/cluster_slurm.hpp"
#include "tests/simulation/cluster_training.hpp"

namespace distilld::test {

/// `distilld attempt` on a node: the product's relay, with a simulated worker. Its name is JOB-ATTEMPT.
class RelayProcess final : public ScriptProcess {
  public:
    RelayProcess(Stage& stage, std::string name, std::function<void()> on_exit);
    ~RelayProcess() override;

    void start(Network& network, JobFolders& folders, Said& said, std::string token, std::uint32_t node);
    void terminate() override;
    [[nodiscard]] boost::asio::io_context& io() override { return io_; }
    /// Null: it has no worker yet.
    [[nodiscard]] const std::shared_ptr<Training>& training() const { return training_; }

  private:
    void on_kill() override;

    boost::asio::io_context io_{1};
    std::unique_ptr<Relay> relay_;
    std::shared_ptr<Training> training_;
    std::function<void()> on_exit_;
};

}  // namespace distilld::test
