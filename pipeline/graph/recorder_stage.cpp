#include "pipeline/graph/recorder_stage.hpp"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/files/files.hpp"
#include "pipeline/async/run_on.hpp"

namespace distilld {

namespace asio = boost::asio;

namespace {

constexpr std::uint64_t kWritesAtOnce = 1;  // copies; a second copy waits for the write

/// A run from the start that trains nothing fails too, even if it is shorter than the limit.
std::uint64_t max_nonfinite_steps(const GraphOptions& options) {
    const std::uint64_t allowed = options.training.max_nonfinite_steps;
    return options.first_step == 0 ? std::clamp<std::uint64_t>(options.total_steps, 1, allowed) : allowed;
}

}  // namespace

RecorderStage::RecorderStage(GraphExecutors executors, Student& student, OptimizerStage& optimizer, EvaluationSet eval,
                             const GraphOptions& options, RecorderHooks hooks, TraceWriter* trace)
    : executors_(std::move(executors)),
      student_(student),
      optimizer_(optimizer),
      options_(options),
      hooks_(std::move(hooks)),
      evaluator_(executors_, student_, std::move(eval), options, hooks_.on_event),
      trace_(trace),
      programs_(executors_, options_.program_every_steps, std::move(hooks_.program), hooks_.on_event),
      writes_(executors_.io),
      space_(executors_.io, hooks_.on_event),
      clock_(Stage::recorder, options_.now),
      evaluation_clock_(Stage::evaluation, options_.now),
      snapshot_clock_(Stage::snapshot, options_.now),
      start_(steady_now()),
      meter_(options_.first_step, options_.total_steps, start_),
      schedule_(options_.checkpoint, start_),
      tokens_seen_(options_.tokens_seen),
      nonfinite_(max_nonfinite_steps(options_)) {
    outcome_.steps_done = options_.first_step;
    outcome_.checkpoint = options_.resumed_from;
    outcome_.last = options_.resumed;
    outcome_.last.step = options_.first_step;
    outcome_.last.total_steps = options_.total_steps;
}

void RecorderStage::start() {
    start_ = steady_now();
    meter_ = ProgressMeter(options_.first_step, options_.total_steps, start_);
    schedule_ = CheckpointSchedule(options_.checkpoint, start_);
}

void RecorderStage::cancel() {
    cancelled_ = true;
    evaluator_.cancel();
    programs_.cancel();
    space_.give_up();
}

asio::awaitable<void> RecorderStage::record(FinishedStep finished) {
    const StepSums& sums = finished.sums;
    ++outcome_.steps_done;
    tokens_seen_ += sums.positions;
    meter_.on_step(outcome_.steps_done, sums.positions, sums.padding, finished.at, hooks_.lost());
    judge(finished);
    report(finished);
    const std::uint64_t every = options_.training.eval_steps;
    const bool due = every > 0 && outcome_.steps_done % every == 0;
    if (due && !whole() && !failure_) {
        co_await evaluate();
    }
}

RankCounters RecorderStage::rank_figures(std::uint64_t tokens) const {
    RankCounters figures;
    if (options_.host.empty()) {
        return figures;
    }
    figures.host = options_.host;
    figures.tokens = tokens;
    for (const StageTimes& stage : hooks_.stages()) {
        figures.busy_seconds[stage.stage] = stage.busy_seconds;
        if (stage.stage == stage_name(Stage::student)) {
            figures.wait_input_seconds = stage.wait_input_seconds;
        }
    }
    return figures;
}

void RecorderStage::judge(const FinishedStep& finished) {
    NonfiniteSteps::Verdict verdict =
        nonfinite_.judge({outcome_.steps_done, finished.stats.finite, finished.sums.mean(finished.stats.loss_sum),
                          finished.stats.grad_norm, finished.learning_rate, finished.at});
    if (!verdict.warning.empty()) {
        emit(LogEvent{"warn", std::move(verdict.warning)});
    }
    if (verdict.failure && !failure_) {
        failure_ = std::move(verdict.failure);
        hooks_.on_failure();
    }
}

void RecorderStage::report(const FinishedStep& finished) {
    const StepSums& sums = finished.sums;
    ProgressEvent event;
    event.of_samples = !options_.training.losses.empty();
    event.step = outcome_.steps_done;
    event.loss = sums.mean(finished.stats.loss_sum);
    event.kd_loss = sums.mean(finished.stats.kd_sum);
    event.ce_loss = sums.mean(finished.stats.ce_sum);
    event.grad_norm = finished.stats.grad_norm;
    event.learning_rate = finished.learning_rate;
    event.nonfinite_steps = nonfinite_.total();
    meter_.fill(event);
    fill(event);
    const TrainingSpec& training = options_.training;
    const bool all_written = options_.rollout && options_.rollout->plan.lmbda == 1;
    if (event.rollout && all_written && training.beta == 1 && training.temperature == 1 && training.kd_ratio > 0) {
        event.rollout->reverse_kl = event.kd_loss;
    }
    event.ranks = finished.ranks;
    ProgressMeter::share_rate(event);
    outcome_.last = event;
    outcome_.last.tokens_per_second = meter_.mean_tokens_per_second();
    ProgressMeter::share_rate(outcome_.last);
    const std::uint64_t every = std::max<std::uint64_t>(1, options_.training.logging_steps);
    if (whole() || event.step % every == 0) {
        emit(event);
    }
}

void RecorderStage::fill(ProgressEvent& event) const {
    GraphTimes times = hooks_.observe();
    event.bottleneck = stage_name(ProgressMeter::bottleneck(times.stages, times.fill_seconds));
    event.stages = std::move(times.stages);
    event.fetch = std::move(times.fetch);
    event.rollout = times.rollout;
    event.durations.requests = std::move(times.request_durations);
    event.measures.queues = std::move(times.queues);
    event.measures.queues.push_back({std::string(stage_name(Stage::recorder)), writes_.size(), kWritesAtOnce});
    if (hooks_.usage) {
        event.measures.usage = hooks_.usage();
    }
    const double waited = times.student_waited_seconds;
    const double wall = to_seconds(steady_now() - start_);
    event.stall_fraction = wall > 0 ? waited / wall : 0;
    if (times.teacher_busy_seconds) {
        const double asked = *times.teacher_busy_seconds;
        event.teacher_hidden_fraction = asked > 0 ? std::clamp(1.0 - waited / asked, 0.0, 1.0) : 1.0;
    }
}

void RecorderStage::emit(const WorkerEvent& event) const {
    if (hooks_.on_event) {
        hooks_.on_event(event);
    }
}

asio::awaitable<bool> RecorderStage::evaluate() {
    if (!evaluator_.empty()) {
        co_await optimizer_.apply_updates(outcome_.steps_done);
    }
    evaluation_clock_.enter(StageClock::State::busy);
    const Instant began = steady_now();
    const std::optional<EvalStats> total = co_await evaluator_.run();
    std::vector<SampledText> samples;
    if (total && hooks_.sample) {
        auto sample = [this] { return hooks_.sample(student_, outcome_.steps_done); };
        samples = co_await run_on(executors_.compute, std::move(sample));
    }
    evaluation_clock_.enter(StageClock::State::wait_input);
    if (!total) {
        co_return false;
    }
    if (trace_ != nullptr && !evaluator_.empty()) {
        trace_->span(Stage::evaluation, "evaluate", began, steady_now(), outcome_.steps_done);
    }
    if (const std::optional<double> loss = mean_loss(*total)) {
        outcome_.eval_loss = loss;
        EvaluationEvent event{outcome_.steps_done, *loss, total->target_tokens};
        if (total->teacher_tokens > 0) {
            const auto tokens = static_cast<double>(total->teacher_tokens);
            event.kl = total->kl_sum / tokens;
            event.top1_agreement = static_cast<double>(total->agreeing) / tokens;
            event.acceptance_rate = total->accepted / tokens;
        }
        event.samples = std::move(samples);
        event.of_samples = !options_.training.losses.empty();
        emit(event);
    }
    co_return true;
}

asio::awaitable<void> RecorderStage::last_evaluation() {
    const bool done = co_await evaluate();
    cut_short_ = cut_short_ || !done;
}

asio::awaitable<void> RecorderStage::copy_when_due() {
    if (whole()) {
        co_return;
    }
    if (space_.waiting()) {
        co_await written();
        if (cancelled_) {
            co_return;
        }
    }
    const bool due = schedule_.due(outcome_.steps_done, steady_now()) || checkpoint_requested_;
    const bool checkpoint = hooks_.commit_checkpoint && due;
    const bool program = !failure_ && programs_.begin(outcome_.steps_done);
    if (!checkpoint && !program) {
        co_return;
    }
    checkpoint_requested_ = checkpoint_requested_ && !checkpoint;
    co_await written();
    std::shared_ptr<const StudentSnapshot> taken = co_await snapshot();
    if (!writes_.spawn(write_copy(std::move(taken), outcome_.steps_done, checkpoint, program))) {
        throw std::logic_error("recorder stage: a checkpoint after the last");
    }
}

asio::awaitable<void> RecorderStage::write_copy(std::shared_ptr<const StudentSnapshot> taken, std::uint64_t step,
                                                bool checkpoint, bool program) {
    if (checkpoint) {
        co_await write(taken, step);
    }
    if (program) {
        clock_.enter(StageClock::State::busy);
        co_await programs_.export_student(step, std::move(taken));
        clock_.enter(StageClock::State::wait_input);
    }
}

asio::awaitable<void> RecorderStage::last_checkpoint() {
    const bool nothing_new = outcome_.steps_done == options_.first_step;
    if ((nothing_new || forgoes_last_) && !whole()) {
        co_return;
    }
    if (!hooks_.commit_checkpoint) {
        co_await run_on(executors_.compute, [this] { student_.attend_last_snapshot(); });
        co_return;
    }
    if (nothing_new) {
        fill(outcome_.last);
        if (options_.first_step > 0) {
            emit(LogEvent{"info", "all " + std::to_string(options_.first_step) +
                                      " steps were done before: nothing left to train"});
        }
    }
    co_await written();
    std::shared_ptr<const StudentSnapshot> taken = co_await snapshot();
    if (whole()) {
        outcome_.final_snapshot = taken;
    }
    if (nothing_new && !options_.resumed_from.empty()) {
        co_return;  // it is on the disk
    }
    co_await write(std::move(taken), outcome_.steps_done);
}

asio::awaitable<void> RecorderStage::written() {
    while (writes_.size() > 0) {
        co_await writes_.changed().wait();
    }
    if (writes_.closed()) {
        co_await writes_.join();  // rethrows what the write threw
    }
}

asio::awaitable<std::shared_ptr<const StudentSnapshot>> RecorderStage::snapshot() {
    RunState state;
    state.step = outcome_.steps_done;
    state.next_micro_batch = options_.steps.whole().first_of(outcome_.steps_done);
    state.tokens_seen = tokens_seen_;
    state.spec_json = options_.spec_json;
    state.last = outcome_.last;
    state.last.durations = {};
    state.last.measures = {};
    state.last.ranks.clear();
    co_await optimizer_.apply_updates(outcome_.steps_done);
    snapshot_clock_.enter(StageClock::State::busy);
    const Instant began = steady_now();
    auto copy = [this, state] { return student_.snapshot(state); };
    std::shared_ptr<const StudentSnapshot> taken = co_await run_on(executors_.compute, std::move(copy));
    snapshot_clock_.enter(StageClock::State::wait_input);
    if (trace_ != nullptr) {
        trace_->span(Stage::snapshot, "copy", began, steady_now(), outcome_.steps_done);
    }
    co_return taken;
}

asio::awaitable<void> RecorderStage::write(std::shared_ptr<const StudentSnapshot> taken, std::uint64_t step) {
    clock_.enter(StageClock::State::busy);
    schedule_.on_begun();
    const Instant began = steady_now();
    const auto bytes = std::make_shared<std::uint64_t>(0);  // the attempt outlives our frame if that is cancelled
    std::function<Result<std::string>()> commit = [this, taken = std::move(taken), step, bytes] {
        Result<std::string> folder = hooks_.commit_checkpoint(step, *taken);
        if (folder) {
            *bytes = folder_bytes(*folder);
        }
        return folder;
    };
    const Result<std::string> folder = co_await space_.perform(executors_.disk, std::move(commit));
    const Instant now = steady_now();
    schedule_.on_written(now);
    if (trace_ != nullptr) {
        trace_->span(Stage::recorder, "checkpoint", began, now, step);
    }
    clock_.enter(StageClock::State::wait_input);
    cut_short_ = !folder && folder.error().kind == ErrorKind::disk_full;
    if (cut_short_) {
        emit(LogEvent{"warn",
                      "the checkpoint of step " + std::to_string(step) + " was abandoned: " + folder.error().message});
        co_return;
    }
    if (!folder) {
        if (!failure_) {
            failure_ = folder.error();
        }
        hooks_.on_failure();
        co_return;
    }
    outcome_.checkpoint = *folder;
    emit(CheckpointEvent{step, *folder, to_seconds(now - began), *bytes});
}

asio::awaitable<void> RecorderStage::join() {
    co_await writes_.join();
    co_await programs_.join();
}

}  // namespace distilld
