#include "server/supervisor/slurm/slurm_launcher.hpp"

#include <boost/asio/this_coro.hpp>
#include <optional>
#include <stdexcept>
#include <utility>

#include "server/supervisor/slurm/slurm_queue.hpp"

namespace distilld::slurm {
namespace {

namespace asio = boost::asio;

class SlurmLauncher final : public Launcher {
  public:
    explicit SlurmLauncher(Commands commands) : commands_(std::move(commands)) {}

    std::unique_ptr<WorkerProcess> make(asio::any_io_executor, const Attempt&) override {
        throw std::runtime_error("workers do not report from other machines yet");
    }

    asio::awaitable<Result<std::vector<Node>>> nodes(std::vector<std::string> running) override {
        if (!queue_) {
            queue_.emplace(commands_, co_await asio::this_coro::executor);
        }
        co_return co_await queue_->nodes(std::move(running));
    }

  private:
    Commands commands_;
    std::optional<Queue> queue_;
};

}  // namespace

std::unique_ptr<Launcher> make_slurm_launcher(Commands commands) {
    return std::make_unique<SlurmLauncher>(std::move(commands));
}

}  // namespace distilld::slurm
