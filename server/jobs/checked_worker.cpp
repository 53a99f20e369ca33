#include "server/jobs/checked_worker.hpp"

#include <memory>
#include <utility>

namespace distilld {
namespace {

namespace asio = boost::asio;

class CheckedWorker final : public WorkerProcess {
  public:
    CheckedWorker(std::unique_ptr<WorkerProcess> worker, WorkerChecks checks)
        : worker_(std::move(worker)), checks_(std::move(checks)) {}

    asio::awaitable<Result<WorkerExit>> run(WorkerStart start, EventHandler on_event) override {
        if (const auto spec = api::parse_job_spec(start.spec_json)) {  // else the worker says what is wrong
            const auto violations = checks_.admit(*spec);
            if (!violations.violations.empty()) {
                on_event(FailedEvent{"invalid_input", api::describe(violations)});
                co_return WorkerExit{};
            }
            if (checks_.files) {
                start.files = checks_.files(*spec);
            }
        }
        auto running = worker_->run(std::move(start), std::move(on_event));
        co_return co_await std::move(running);
    }

    void send(const WorkerCommand& command) override { worker_->send(command); }
    void kill() override { worker_->kill(); }

  private:
    std::unique_ptr<WorkerProcess> worker_;
    WorkerChecks checks_;
};

}  // namespace

WorkerFactory make_checked_workers(WorkerFactory workers, WorkerChecks checks) {
    return
        [workers = std::move(workers), checks = std::move(checks)](asio::any_io_executor executor, const Slot& slot) {
            return std::make_unique<CheckedWorker>(workers(std::move(executor), slot), checks);
        };
}

}  // namespace distilld
