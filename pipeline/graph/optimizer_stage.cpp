#include "pipeline/graph/optimizer_stage.hpp"

#include <utility>

#include "pipeline/async/run_on.hpp"
#include "pipeline/core/lr_schedule.hpp"

namespace distilld {

namespace asio = boost::asio;

OptimizerStage::OptimizerStage(asio::any_io_executor compute, Student& student, const TrainingSpec& training,
                               std::uint64_t total_steps, TraceWriter* trace, StageClock::Now now)
    : compute_(std::move(compute)),
      student_(student),
      training_(training),
      total_steps_(total_steps),
      trace_(trace),
      clock_(Stage::optimizer, std::move(now)) {}

asio::awaitable<FinishedStep> OptimizerStage::finish_step(std::uint64_t step, StepSums sums, RankCounters figures) {
    FinishedStep finished;
    finished.learning_rate = learning_rate_at(training_.lr_scheduler_type, training_.learning_rate,
                                              warmup_steps_of(training_, total_steps_), total_steps_, step);
    clock_.enter(StageClock::State::busy);
    const Instant began = steady_now();
    auto finish = [this, rate = finished.learning_rate, sums, figures = std::move(figures)] {
        const StepStats stats = student_.finish_step(rate);
        return std::pair(stats, student_.of_all_ranks(sums, figures));
    };
    std::pair<StepStats, StepOfAll> result = co_await run_on(compute_, std::move(finish));
    finished.stats = result.first;
    finished.sums = result.second.sums;
    finished.ranks = std::move(result.second.ranks);
    finished.at = steady_now();
    if (trace_ != nullptr) {
        trace_->span(Stage::optimizer, "finish_step", began, finished.at, step);
    }
    clock_.enter(StageClock::State::wait_input);
    updates_pending_ = training_.overlap_optimizer && training_.parallel;
    co_return finished;
}

asio::awaitable<void> OptimizerStage::apply_one_update(std::uint64_t steps_done) {
    clock_.enter(StageClock::State::busy);
    const Instant began = steady_now();
    auto apply = [this] { return student_.apply_one_pending_update(); };
    updates_pending_ = co_await run_on(compute_, std::move(apply));
    if (trace_ != nullptr && updates_pending_) {
        trace_->span(Stage::optimizer, "update", began, steady_now(), steps_done);
    }
    clock_.enter(StageClock::State::wait_input);
}

asio::awaitable<void> OptimizerStage::apply_updates(std::uint64_t steps_done) {
    while (updates_pending_) {
        co_await apply_one_update(steps_done);
    }
}

}  // namespace distilld
