#include "server/supervisor/restarting_worker.hpp"

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <optional>
#include <utility>
#include <variant>

#include "pipeline/async/tuple.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;

struct Restarts {
    Restarts(const asio::any_io_executor& executor, std::function<std::unique_ptr<WorkerProcess>()> make_worker_in,
             RestartLimits limits_in)
        : make_worker(std::move(make_worker_in)), limits(limits_in), pause(executor) {}

    std::function<std::unique_ptr<WorkerProcess>()> make_worker;
    RestartLimits limits;
    RestartPolicy policy;
    std::unique_ptr<WorkerProcess> worker;
    CancelledEvent newest;  ///< step and folder of the newest checkpoint
    asio::steady_timer pause;
    bool killed = false;
};

/// Passes on the events of one worker, but holds back its death.
class OneRun {
  public:
    OneRun(Restarts& restarts, const WorkerProcess::EventHandler& on_event)
        : restarts_(restarts), on_event_(on_event) {}

    void take(const WorkerEvent& event) {
        if (const auto* failed = std::get_if<FailedEvent>(&event); failed != nullptr && is_death(*failed)) {
            death_ = *failed;
            return;
        }
        reach_.take(event);
        if (const auto* checkpoint = std::get_if<CheckpointEvent>(&event)) {
            restarts_.newest = {checkpoint->step, checkpoint->folder};
        }
        on_event_(event);
    }

    [[nodiscard]] const std::optional<FailedEvent>& death() const { return death_; }
    [[nodiscard]] const RunReach& reach() const { return reach_; }

  private:
    static bool is_death(const FailedEvent& failed) {
        return failed.kind == kWorkerKilled || failed.kind == kWorkerOutOfMemory || failed.kind == kRankLost;
    }

    Restarts& restarts_;
    const WorkerProcess::EventHandler& on_event_;
    std::optional<FailedEvent> death_;
    RunReach reach_;
};

asio::awaitable<Result<WorkerExit>> run_restarting(std::shared_ptr<Restarts> restarts, WorkerStart start,
                                                   WorkerProcess::EventHandler on_event) {
    co_await asio::this_coro::throw_if_cancelled(false);
    for (;;) {
        restarts->worker = restarts->make_worker();
        OneRun run(*restarts, on_event);
        const WorkerProcess::EventHandler take = [&run](const WorkerEvent& event) { run.take(event); };
        const auto exit = co_await restarts->worker->run(start, take);
        if (!run.death()) {
            co_return exit;
        }
        auto death = *run.death();
        auto state = co_await asio::this_coro::cancellation_state;
        if (restarts->killed || state.cancelled() != asio::cancellation_type::none) {
            on_event(death);
            co_return exit;
        }
        const FailedEvent at_first = death;
        const auto verdict = restarts->policy.on_died(restarts->limits, run.reach(), death.kind == kWorkerOutOfMemory);
        death.message += verdict.text;
        if (!verdict.pause) {
            on_event(death);
            co_return exit;
        }
        on_event(LogEvent{"warn", death.message});
        state = co_await asio::this_coro::cancellation_state;
        if (!restarts->killed && state.cancelled() == asio::cancellation_type::none) {
            restarts->pause.expires_after(*verdict.pause);
            co_await restarts->pause.async_wait(kTuple);
            state = co_await asio::this_coro::cancellation_state;
        }
        if (restarts->killed) {
            on_event(at_first);
            co_return exit;
        }
        if (state.cancelled() != asio::cancellation_type::none) {
            on_event(restarts->newest);
            co_return exit;
        }
        start.resume = true;
        if (verdict.smaller) {
            take_micro_batches(start, *verdict.smaller);
        }
    }
}

class RestartingWorker final : public WorkerProcess {
  public:
    RestartingWorker(const asio::any_io_executor& executor, std::function<std::unique_ptr<WorkerProcess>()> make_worker,
                     RestartLimits limits)
        : restarts_(std::make_shared<Restarts>(executor, std::move(make_worker), limits)) {}

    asio::awaitable<Result<WorkerExit>> run(WorkerStart start, EventHandler on_event) override {
        return run_restarting(restarts_, std::move(start), std::move(on_event));
    }
    void send(const WorkerCommand& command) override {
        if (restarts_->worker) {
            restarts_->worker->send(command);
        }
    }
    void kill() override {
        restarts_->killed = true;
        restarts_->pause.cancel();
        if (restarts_->worker) {
            restarts_->worker->kill();
        }
    }

  private:
    std::shared_ptr<Restarts> restarts_;
};

}  // namespace

std::unique_ptr<WorkerProcess> make_restarting_worker(asio::any_io_executor executor,
                                                      std::function<std::unique_ptr<WorkerProcess>()> make_worker,
                                                      RestartLimits limits) {
    return std::make_unique<RestartingWorker>(executor, std::move(make_worker), limits);
}

}  // namespace distilld
