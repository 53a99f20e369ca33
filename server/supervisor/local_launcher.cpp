#include <algorithm>
#include <utility>

#include "server/supervisor/launcher.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;

class LocalLauncher final : public Launcher {
  public:
    LocalLauncher(Node machine, std::uint32_t slots, WorkerFactory make_worker)
        : machine_(std::move(machine)), slots_(slots), make_worker_(std::move(make_worker)) {}

    std::unique_ptr<WorkerProcess> make(asio::any_io_executor executor, const Attempt& attempt) override {
        return make_worker_(std::move(executor), attempt.slot);
    }

    asio::awaitable<Result<std::vector<Node>>> nodes(std::vector<std::string> running) override {
        Node node = machine_;
        if (!running.empty()) {
            node.state = running.size() < slots_ ? "mixed" : "allocated";
        }
        node.jobs = std::move(running);
        co_return std::vector<Node>(1, std::move(node));
    }

    asio::awaitable<Result<std::uint32_t>> room(std::vector<std::string> running) override {
        co_return slots_ - std::min(slots_, static_cast<std::uint32_t>(running.size()));
    }

  private:
    Node machine_;
    std::uint32_t slots_;
    WorkerFactory make_worker_;
};

}  // namespace

asio::awaitable<Result<std::uint32_t>> Launcher::room(std::vector<std::string> running) {
    const auto machines = co_await nodes(std::move(running));
    if (!machines) {
        co_return machines.error();
    }
    co_return static_cast<std::uint32_t>(std::ranges::count(*machines, "idle", &Node::state));
}

std::unique_ptr<Launcher> make_local_launcher(Node machine, std::uint32_t slots, WorkerFactory make_worker) {
    return std::make_unique<LocalLauncher>(std::move(machine), slots, std::move(make_worker));
}

}  // namespace distilld
