#include "pipeline/graph/student_stage.hpp"

#include <exception>
#include <memory>
#include <utility>

#include "pipeline/async/run_on.hpp"
#include "pipeline/graph/thrown_by.hpp"

namespace distilld {

namespace asio = boost::asio;

StudentStage::StudentStage(asio::any_io_executor compute, Student& student, BoundedChannel<StagedMicroBatch>& input,
                           TeacherStage& teacher, OptimizerStage& optimizer, RecorderStage& recorder,
                           const GraphOptions& options, TraceWriter* trace)
    : compute_(std::move(compute)),
      student_(student),
      input_(input),
      teacher_(teacher),
      optimizer_(optimizer),
      recorder_(recorder),
      options_(options),
      trace_(trace),
      clock_(Stage::student, options.now) {}

asio::awaitable<void> StudentStage::run() {
    const std::exception_ptr thrown = co_await thrown_by(train_all());
    clock_.enter(StageClock::State::idle);
    rethrow_if(thrown);
}

asio::awaitable<void> StudentStage::train_all() {
    for (std::uint64_t step = options_.first_step; step < options_.total_steps; ++step) {
        const std::optional<StepSums> sums = co_await train_step(step);
        if (!sums) {
            co_return;
        }
        const FinishedStep finished = co_await optimizer_.finish_step(step);
        co_await recorder_.record(*sums, finished);
        if (!cancelled_) {
            co_await recorder_.checkpoint_when_due();
        }
        if (cancelled_) {
            co_return;
        }
    }
}

/// Empty if the run ends before the step has all its micro-batches. A step that has them is finished even when
/// cancelled: it needs no more waiting.
asio::awaitable<std::optional<StepSums>> StudentStage::train_step(std::uint64_t step) {
    StepSums sums;
    const std::uint64_t first = options_.steps.first_of(step);
    for (std::uint64_t n = first; n < options_.steps.first_of(step + 1); ++n) {
        if (cancelled_ && n > first) {
            co_return std::nullopt;
        }
        std::optional<StagedMicroBatch> staged = co_await next();
        if (!staged) {
            co_return std::nullopt;
        }
        const std::uint64_t positions = staged->positions;
        const std::uint64_t padding = staged->padding;
        const MicroBatchStats stats = co_await train(std::move(*staged));
        sums.add(stats, positions, padding);
    }
    co_return sums;
}

asio::awaitable<std::optional<StagedMicroBatch>> StudentStage::next() {
    teacher_.on_wanted();
    clock_.enter(StageClock::State::wait_input);
    // Idle time is for the optimizer's pending updates, one layer at a time.
    while (input_.size() == 0 && !input_.closed() && optimizer_.updates_pending()) {
        co_await optimizer_.apply_one_update(recorder_.steps_done());
    }
    co_return co_await input_.receive();
}

asio::awaitable<MicroBatchStats> StudentStage::train(StagedMicroBatch staged) {
    const std::uint64_t n = staged.number;
    // Sequential mode sends the next request only after training on this micro-batch.
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
    const MicroBatchStats stats = co_await run_on(compute_, std::move(work));
    clock_.enter(StageClock::State::wait_output);  // for the optimizer and the recorder, at the end of a step
    const Nanos updates = from_seconds(stats.update_seconds);
    clock_.rebook(StageClock::State::busy, StageClock::State::wait_output, updates);
    optimizer_.on_updates_took(updates);
    optimizer_.on_updates_applied();
    if (trace_ != nullptr) {
        trace_->span(Stage::student, "train", began, steady_now(), n);
    }
    teacher_.on_trained(n);
    if (!release_early) {
        teacher_.on_released(n);
    }
    co_return stats;
}

}  // namespace distilld
