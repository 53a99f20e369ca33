#include "pipeline/graph/student_stage.hpp"

#include <algorithm>
#include <exception>
#include <memory>
#include <utility>

#include "pipeline/async/run_on.hpp"
#include "pipeline/graph/thrown_by.hpp"

namespace distilld {

namespace asio = boost::asio;

namespace {

/// In sequential mode one, because the next request is sent only after training on this micro-batch.
std::vector<asio::any_io_executor> trainers_of(const GraphExecutors& executors, const TrainingSpec& training) {
    std::vector<asio::any_io_executor> trainers = executors.replicas;
    trainers.resize(training.parallel ? std::max<std::size_t>(1, trainers.size()) : 1, executors.compute);
    return trainers;
}

}  // namespace

StudentStage::StudentStage(const GraphExecutors& executors, Student& student, BoundedChannel<StagedMicroBatch>& input,
                           TeacherStage& teacher, OptimizerStage& optimizer, RecorderStage& recorder,
                           const GraphOptions& options, TraceWriter* trace, RolloutStage* rollout)
    : trainers_(trainers_of(executors, options.training)),
      student_(student),
      input_(input),
      teacher_(teacher),
      optimizer_(optimizer),
      recorder_(recorder),
      options_(options),
      trace_(trace),
      rollout_(rollout),
      training_(executors.io),
      clock_(Stage::student, options.now) {}

asio::awaitable<void> StudentStage::run() {
    std::exception_ptr thrown = co_await thrown_by(train_all());
    // What trains refers to us, so it is joined even if we are cancelled.
    const bool throwing = co_await asio::this_coro::throw_if_cancelled();
    co_await asio::this_coro::throw_if_cancelled(false);
    const std::exception_ptr failed = co_await thrown_by(training_.join());
    co_await asio::this_coro::throw_if_cancelled(throwing);
    clock_.enter(StageClock::State::idle);
    rethrow_if(failed);
    rethrow_if(thrown);
}

asio::awaitable<void> StudentStage::train_all() {
    for (std::uint64_t step = options_.first_step; step < options_.total_steps; ++step) {
        const std::optional<StepSums> sums = co_await train_step(step);
        if (!sums) {
            co_return;
        }
        tokens_ += sums->positions;
        FinishedStep finished = co_await optimizer_.finish_step(step, *sums, recorder_.rank_figures(tokens_));
        co_await recorder_.record(std::move(finished));
        if (!cancelled_ && rollout_ != nullptr) {
            co_await rollout_->on_step_done(step + 1);
        }
        if (!cancelled_) {
            co_await recorder_.copy_when_due();
        }
        if (cancelled_) {
            co_return;
        }
    }
}

/// Empty if the run ends before the step has all its micro-batches. A step that has them is finished even when
/// cancelled: it needs no more waiting.
asio::awaitable<std::optional<StepSums>> StudentStage::train_step(std::uint64_t step) {
    sums_ = {};
    const std::uint64_t first = options_.steps.first_of(step);
    for (std::uint64_t n = first; n < options_.steps.first_of(step + 1); ++n) {
        if (!co_await until_training(trainers_.size() - 1) || (cancelled_ && n > first)) {
            co_return std::nullopt;
        }
        std::optional<StagedMicroBatch> staged = co_await next();
        if (!staged || !training_.spawn(train(std::move(*staged)))) {
            co_return std::nullopt;
        }
    }
    co_return co_await until_training(0) ? std::optional(sums_) : std::nullopt;
}

asio::awaitable<bool> StudentStage::until_training(std::size_t tasks) {
    while (training_.size() > tasks && !training_.closed()) {
        co_await training_.changed().wait();
    }
    co_return !training_.closed();
}

asio::awaitable<std::optional<StagedMicroBatch>> StudentStage::next() {
    teacher_.on_wanted();
    if (training_.size() == 0) {
        clock_.enter(StageClock::State::wait_input);
    }
    // Idle time is for the optimizer's pending updates, one layer at a time.
    while (training_.size() == 0 && input_.size() == 0 && !input_.closed() && optimizer_.updates_pending()) {
        co_await optimizer_.apply_one_update(recorder_.steps_done());
    }
    co_return co_await input_.receive();
}

asio::awaitable<void> StudentStage::train(StagedMicroBatch staged) {
    const std::uint64_t n = staged.number;
    const bool release_early = options_.training.parallel;
    teacher_.on_taken(n);
    if (release_early) {
        teacher_.on_released(n);
    }
    clock_.enter(StageClock::State::busy);
    if (!filled_) {
        filled_ = true;
        fill_seconds_ = clock_.times().wait_input_seconds;
    }
    const Instant began = steady_now();
    auto work = [this, batch = std::shared_ptr<StagedBatch>(std::move(staged.batch))] {
        return student_.train(*batch);
    };
    const MicroBatchStats stats = co_await run_on(trainers_[n % trainers_.size()], std::move(work));
    if (training_.size() == 1) {
        clock_.enter(StageClock::State::wait_output);  // for the optimizer and the recorder, at the end of a step
    }
    const Nanos updates = from_seconds(stats.update_seconds);
    clock_.rebook(StageClock::State::busy, StageClock::State::wait_output, updates);
    optimizer_.on_updates_took(updates);
    optimizer_.on_updates_applied();
    if (trace_ != nullptr) {
        const auto span = trainers_.size() > 1 ? &TraceWriter::overlapping_span : &TraceWriter::span;
        (trace_->*span)(Stage::student, "train", began, steady_now(), n);
    }
    teacher_.on_trained(n);
    if (!release_early) {
        teacher_.on_released(n);
    }
    sums_.add(stats, staged.positions, staged.padding);
}

}  // namespace distilld
