#include "server/jobs/checked_worker.hpp"

#include <memory>
#include <utility>

namespace distilld {
namespace {

namespace asio = boost::asio;
using Admit = std::function<api::SpecViolations(const JobSpec&)>;

class CheckedWorker final : public WorkerProcess {
  public:
    CheckedWorker(std::unique_ptr<WorkerProcess> worker, Admit admit)
        : worker_(std::move(worker)), admit_(std::move(admit)) {}

    asio::awaitable<Result<WorkerExit>> run(WorkerStart start, EventHandler on_event) override {
        if (const auto spec = api::parse_job_spec(start.spec_json)) {  // else the worker says what is wrong
            const auto violations = admit_(*spec);
            if (!violations.violations.empty()) {
                on_event(FailedEvent{"invalid_input", api::describe(violations)});
                co_return WorkerExit{};
            }
        }
        auto running = worker_->run(std::move(start), std::move(on_event));
        co_return co_await std::move(running);
    }

    void send(const WorkerCommand& command) override { worker_->send(command); }
    void kill() override { worker_->kill(); }

  private:
    std::unique_ptr<WorkerProcess> worker_;
    Admit admit_;
};

}  // namespace

WorkerFactory make_checked_workers(WorkerFactory workers, Admit admit) {
    return [workers = std::move(workers), admit = std::move(admit)](asio::any_io_executor executor, const Slot& slot) {
        return std::make_unique<CheckedWorker>(workers(std::move(executor), slot), admit);
    };
}

}  // namespace distilld
