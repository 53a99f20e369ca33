#include "server/jobs/checked_worker.hpp"

#include <boost/asio/thread_pool.hpp>
#include <memory>
#include <utility>

#include "pipeline/async/run_on.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;

constexpr std::size_t kDiskThreads = 4;

struct Verdict {
    api::SpecViolations refused;
    std::optional<FileRule> files;
};

class CheckedWorker final : public WorkerProcess {
  public:
    CheckedWorker(std::unique_ptr<WorkerProcess> worker, std::shared_ptr<asio::thread_pool> disk, WorkerChecks checks)
        : worker_(std::move(worker)), disk_(std::move(disk)), checks_(std::move(checks)) {}

    asio::awaitable<Result<WorkerExit>> run(WorkerStart start, EventHandler on_event) override {
        if (const auto spec = api::parse_job_spec(start.spec_json)) {  // else the worker says what is wrong
            auto judging = run_on(disk_->get_executor(), [checks = checks_, spec = *spec] {
                return Verdict{checks.admit(spec), checks.files ? checks.files(spec) : std::nullopt};
            });
            auto verdict = co_await std::move(judging);
            const auto& violations = verdict.refused.violations;
            if (!violations.empty()) {
                on_event(FailedEvent{violations.front().code, api::describe(verdict.refused)});
                co_return WorkerExit{};
            }
            start.files = std::move(verdict.files);
        }
        co_return co_await worker_->run(std::move(start), std::move(on_event));
    }

    void send(const WorkerCommand& command) override { worker_->send(command); }
    void kill() override { worker_->kill(); }

  private:
    std::unique_ptr<WorkerProcess> worker_;
    std::shared_ptr<asio::thread_pool> disk_;  // of all workers of the factory, of which none is the last for sure
    WorkerChecks checks_;
};

}  // namespace

WorkerFactory make_checked_workers(WorkerFactory workers, WorkerChecks checks) {
    auto disk = std::make_shared<asio::thread_pool>(kDiskThreads);
    return [workers = std::move(workers), disk = std::move(disk), checks = std::move(checks)](
               asio::any_io_executor executor, const Slot& slot) {
        return std::make_unique<CheckedWorker>(workers(std::move(executor), slot), disk, checks);
    };
}

}  // namespace distilld
