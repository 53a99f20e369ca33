#include "pipeline/graph/program_evaluations.hpp"

#include <utility>

#include "base/scope_exit.hpp"
#include "pipeline/async/run_on.hpp"

namespace distilld {

namespace asio = boost::asio;

ProgramEvaluations::ProgramEvaluations(const GraphExecutors& executors, std::uint64_t every_steps,
                                       EvalProgramHooks hooks, std::function<void(const WorkerEvent&)> on_event)
    : disk_(executors.disk),
      every_steps_(hooks.write && hooks.run ? every_steps : 0),
      hooks_(std::move(hooks)),
      on_event_(std::move(on_event)),
      programs_(executors.io) {}

bool ProgramEvaluations::begin(std::uint64_t step) {
    if (every_steps_ == 0 || step % every_steps_ != 0 || programs_.closed()) {
        return false;
    }
    if (busy_ && !std::exchange(told_, true) && on_event_) {
        on_event_(LogEvent{"warn", "eval.command is left out from step " + std::to_string(step) +
                                       " on, as it still runs for an earlier step; raise eval.every_steps, or make it "
                                       "faster"});
    }
    told_ = told_ && busy_;
    return !std::exchange(busy_, true);
}

asio::awaitable<void> ProgramEvaluations::export_student(std::uint64_t step,
                                                         std::shared_ptr<const StudentSnapshot> taken) {
    std::function<Result<void>()> write = [this, taken = std::move(taken)] { return hooks_.write(*taken); };
    const Result<void> written = co_await run_on(disk_, std::move(write));
    if (!written && on_event_) {
        on_event_(FiguresEvent{.step = step, .problem = "the student was not exported: " + written.error().message});
    }
    if (!written || !programs_.spawn(run(step))) {
        busy_ = false;
    }
}

asio::awaitable<void> ProgramEvaluations::run(std::uint64_t step) {
    const ScopeExit ended([this] { busy_ = false; });
    co_await hooks_.run(step);
}

void ProgramEvaluations::cancel() {
    programs_.cancel();
}

asio::awaitable<void> ProgramEvaluations::join() {
    co_await programs_.join();
}

}  // namespace distilld
