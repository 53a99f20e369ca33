#include "pipeline/graph/training_graph.hpp"

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <utility>

#include "pipeline/async/bounded_channel.hpp"
#include "pipeline/async/run_on.hpp"
#include "pipeline/async/signal.hpp"
#include "pipeline/async/task_group.hpp"
#include "pipeline/core/lr_schedule.hpp"
#include "pipeline/graph/progress_meter.hpp"
#include "pipeline/graph/stage_clock.hpp"

namespace distilld {

namespace asio = boost::asio;

namespace {

constexpr std::size_t kStagedAhead = 1;  // micro-batches staged while one trains

/// A staged micro-batch with its number; released on the staging side of the student.
struct Staged {
    std::uint64_t number = 0;
    std::uint64_t positions = 0;
    std::unique_ptr<StagedBatch> batch;
};

/// Sums of one optimizer step.
struct StepSums {
    MicroBatchStats stats;
    std::uint64_t positions = 0;

    void add(const MicroBatchStats& more, std::uint64_t more_positions) {
        stats.target_tokens += more.target_tokens;
        stats.loss_sum += more.loss_sum;
        stats.kd_sum += more.kd_sum;
        stats.ce_sum += more.ce_sum;
        positions += more_positions;
    }
};

class StagedTrainingGraph final : public TrainingGraph {
  public:
    StagedTrainingGraph(GraphExecutors executors, Student& student, TeacherSource* source,
                        std::shared_ptr<BatchSource> batches, std::vector<TokenBatch> eval, GraphOptions options,
                        GraphHooks hooks, TraceWriter* trace)
        : executors_(std::move(executors)),
          student_(student),
          has_teacher_(source != nullptr),
          eval_(std::move(eval)),
          options_(std::move(options)),
          hooks_(std::move(hooks)),
          trace_(trace),
          teacher_(make_teacher_stage(executors_.io, executors_.staging, source, std::move(batches),
                                      teacher_options(options_), trace)),
          staged_(executors_.io, kStagedAhead),
          want_(executors_.io),
          tasks_(executors_.io),
          recording_(executors_.io),
          meter_(options_.first_step, options_.total_steps, steady_now()) {
        outcome_.steps_done = options_.first_step;
        tokens_seen_ = options_.tokens_seen;
    }

    asio::awaitable<Result<GraphOutcome>> run() override {
        start_ = steady_now();
        meter_ = ProgressMeter(options_.first_step, options_.total_steps, start_);
        spawn(teacher_->run());
        spawn(staging_stage());
        std::exception_ptr thrown;
        try {
            co_await student_stage();
        } catch (...) {
            thrown = std::current_exception();
        }
        teacher_->stop();
        staged_.close();
        want_.notify();
        co_await tasks_.join();
        if (!thrown) {
            thrown = staging_thrown_;
        }
        if (thrown) {
            co_await recording_.join();
            std::rethrow_exception(thrown);
        }
        const bool whole = outcome_.steps_done == options_.total_steps;
        if (!whole && !cancelled_ && !error_) {
            error_ = teacher_->failure();
        }
        co_await last_checkpoint(whole);
        co_await recording_.join();
        if (error_) {
            co_return *error_;
        }
        outcome_.cancelled = !whole;
        co_return std::move(outcome_);
    }

    void cancel() override {
        cancelled_ = true;
        teacher_->stop();
        want_.notify();
        staged_.close();
    }

    void request_checkpoint() override { checkpoint_requested_ = true; }
    void set_max_concurrent(std::uint32_t limit) override { teacher_->set_ceiling(limit); }

  private:
    static TeacherStageOptions teacher_options(const GraphOptions& options) {
        TeacherStageOptions teacher = options.teacher;
        teacher.scheduler.first = options.first_step * options.training.micro_batches;
        teacher.scheduler.end = options.total_steps * options.training.micro_batches;
        if (!options.training.parallel) {
            teacher.scheduler.limit.adaptive = false;
            teacher.scheduler.limit.ceiling = 1;
            teacher.scheduler.window = 1;
            teacher.scheduler.hedge.enabled = false;
        }
        return teacher;
    }

    void spawn(asio::awaitable<void> task) {
        if (!tasks_.spawn(std::move(task))) {
            throw std::logic_error("the graph's task group is closed");
        }
    }

    // --- staging: tensors of micro-batch N+1 while N trains ---
    asio::awaitable<void> staging_stage() {
        try {
            co_await stage_all();
        } catch (...) {
            staging_thrown_ = std::current_exception();  // run() rethrows it once every stage has ended
        }
        staging_clock_.enter(StageClock::State::idle);
        staged_.close();
        want_.notify();
    }

    asio::awaitable<void> stage_all() {
        staging_clock_.enter(StageClock::State::wait_input);
        for (;;) {
            std::optional<MicroBatch> batch = co_await teacher_->next();
            if (!batch) {
                break;
            }
            Staged staged;
            staged.number = batch->tokens->number;
            staged.positions = static_cast<std::uint64_t>(batch->tokens->rows) * batch->tokens->columns;
            staging_clock_.enter(StageClock::State::busy);
            const Instant began = steady_now();
            auto make = [this, moved = std::make_shared<MicroBatch>(std::move(*batch))] {
                return student_.stage(std::move(*moved));
            };
            auto staging = run_on(executors_.staging, std::move(make));
            staged.batch = co_await std::move(staging);
            if (trace_ != nullptr) {
                trace_->span("staging", "stage", began, steady_now(), staged.number);
            }
            staging_clock_.enter(StageClock::State::wait_output);
            auto sending = staged_.send(std::move(staged));
            const bool taken = co_await std::move(sending);
            want_.notify();
            if (!taken) {
                break;
            }
            staging_clock_.enter(StageClock::State::wait_input);
        }
    }

    // --- student and optimizer ---
    asio::awaitable<void> student_stage() {
        std::uint64_t n = options_.first_step * options_.training.micro_batches;
        for (std::uint64_t step = options_.first_step; step < options_.total_steps; ++step) {
            StepSums sums;
            for (std::uint32_t m = 0; m < options_.training.micro_batches; ++m, ++n) {
                std::optional<Staged> staged = co_await next_staged();
                if (!staged) {
                    student_clock_.enter(StageClock::State::idle);
                    co_return;
                }
                co_await train(std::move(*staged), sums);
                if (cancelled_) {
                    student_clock_.enter(StageClock::State::idle);
                    // A step that has all its micro-batches is worth finishing: it costs no more waiting.
                    if (m + 1 < options_.training.micro_batches) {
                        co_return;
                    }
                }
            }
            co_await finish_step(step, sums);
            if (cancelled_) {
                co_return;
            }
        }
        student_clock_.enter(StageClock::State::idle);
    }

    asio::awaitable<std::optional<Staged>> next_staged() {
        teacher_->on_wanted();
        student_clock_.enter(StageClock::State::wait_input);
        for (;;) {
            if (std::optional<Staged> staged = staged_.try_receive()) {
                co_return staged;
            }
            if (staged_.closed()) {
                co_return std::nullopt;
            }
            // Nothing to train on: time for the optimizer's pending updates, one layer at a time.
            if (updates_pending_) {
                co_await apply_one_update();
                continue;
            }
            co_await want_.wait();
        }
    }

    asio::awaitable<void> apply_one_update() {
        optimizer_clock_.enter(StageClock::State::busy);
        const Instant began = steady_now();
        auto apply = [this] { return student_.apply_one_pending_update(); };
        auto applying = run_on(executors_.compute, std::move(apply));
        updates_pending_ = co_await std::move(applying);
        if (trace_ != nullptr && updates_pending_) {
            trace_->span("optimizer", "update", began, steady_now(), outcome_.steps_done);
        }
        optimizer_clock_.enter(StageClock::State::wait_input);
    }

    asio::awaitable<void> train(Staged staged, StepSums& sums) {
        const std::uint64_t n = staged.number;
        teacher_->on_taken(n);
        if (options_.training.parallel) {
            teacher_->on_released(n);
        }
        student_clock_.enter(StageClock::State::busy);
        if (!filled_) {
            filled_ = true;
            outcome_.fill_seconds = student_clock_.times().wait_input_seconds;
        }
        const Instant began = steady_now();
        auto work = [this, batch = std::shared_ptr<StagedBatch>(std::move(staged.batch))] {
            return student_.train(*batch);
        };
        auto training = run_on(executors_.compute, std::move(work));
        const MicroBatchStats stats = co_await std::move(training);
        updates_pending_ = false;  // the forward pass applied what was pending
        if (trace_ != nullptr) {
            trace_->span("student", "train", began, steady_now(), n);
        }
        sums.add(stats, staged.positions);
        teacher_->on_trained(n);
        if (!options_.training.parallel) {
            teacher_->on_released(n);
        }
    }

    asio::awaitable<void> finish_step(std::uint64_t step, const StepSums& sums) {
        const TrainingSpec& training = options_.training;
        const double rate = learning_rate_at(training.lr_scheduler_type, training.learning_rate, training.warmup_steps,
                                             options_.total_steps, step);
        optimizer_clock_.enter(StageClock::State::busy);
        const Instant began = steady_now();
        auto finish = [this, rate] { return student_.finish_step(rate); };
        auto finishing = run_on(executors_.compute, std::move(finish));
        const StepStats result = co_await std::move(finishing);
        const Instant now = steady_now();
        if (trace_ != nullptr) {
            trace_->span("optimizer", "finish_step", began, now, step);
        }
        optimizer_clock_.enter(StageClock::State::wait_input);
        updates_pending_ = training.overlap_optimizer && training.parallel;
        outcome_.steps_done = step + 1;
        tokens_seen_ += sums.positions;
        if (!result.finite) {
            ++nonfinite_steps_;
        }
        meter_.on_step(step + 1, sums.positions, now);
        record_step(sums, result, rate);
        const bool last = step + 1 == options_.total_steps;
        const bool evaluate_now = training.eval_steps > 0 && (step + 1) % training.eval_steps == 0;
        if (!eval_.empty() && (last || evaluate_now)) {
            co_await evaluate();
        }
        const bool due = options_.checkpoint_every > 0 && (step + 1) % options_.checkpoint_every == 0;
        if (!last && !cancelled_ && (due || checkpoint_requested_)) {
            checkpoint_requested_ = false;
            co_await take_checkpoint();
        }
    }

    // --- recorder ---
    void record_step(const StepSums& sums, const StepStats& result, double rate) {
        const double tokens = std::max<double>(1, static_cast<double>(sums.stats.target_tokens));
        ProgressEvent event;
        event.step = outcome_.steps_done;
        event.loss = sums.stats.loss_sum / tokens;
        event.kd_loss = sums.stats.kd_sum / tokens;
        event.ce_loss = sums.stats.ce_sum / tokens;
        event.grad_norm = result.grad_norm;
        event.learning_rate = rate;
        event.nonfinite_steps = nonfinite_steps_;
        fill_times(event);
        outcome_.last = event;
        outcome_.last.tokens_per_second = meter_.mean_tokens_per_second();
        const bool last = event.step == options_.total_steps;
        const std::uint64_t every = std::max<std::uint64_t>(1, options_.training.logging_steps);
        if (hooks_.on_event && (last || event.step % every == 0)) {
            hooks_.on_event(event);
        }
    }

    void fill_times(ProgressEvent& event) {
        meter_.fill(event);
        event.stages = {teacher_->plan_times(), staging_clock_.times(), student_clock_.times(),
                        optimizer_clock_.times(), recorder_clock_.times()};
        if (has_teacher_) {
            event.stages.insert(event.stages.begin() + 1, teacher_->times());
        }
        event.bottleneck = ProgressMeter::bottleneck(event.stages, outcome_.fill_seconds);
        const double waited = student_clock_.times().wait_input_seconds;
        const double wall = to_seconds(steady_now() - start_);
        event.stall_fraction = wall > 0 ? waited / wall : 0;
        if (!has_teacher_) {
            return;
        }
        event.fetch = teacher_->counters();
        const double asked = teacher_->times().busy_seconds;
        event.teacher_hidden_fraction = asked > 0 ? std::clamp(1.0 - waited / asked, 0.0, 1.0) : 1.0;
    }

    asio::awaitable<void> evaluate() {
        EvalStats total;
        for (const TokenBatch& batch : eval_) {
            auto work = [this, &batch] { return student_.evaluate(batch); };
            auto evaluating = run_on(executors_.compute, std::move(work));
            const EvalStats stats = co_await std::move(evaluating);
            total.ce_sum += stats.ce_sum;
            total.target_tokens += stats.target_tokens;
        }
        updates_pending_ = false;  // evaluation applied what was pending
        if (total.target_tokens == 0) {
            co_return;
        }
        outcome_.eval_loss = total.ce_sum / static_cast<double>(total.target_tokens);
        if (hooks_.on_event) {
            hooks_.on_event(EvaluationEvent{outcome_.steps_done, *outcome_.eval_loss, total.target_tokens});
        }
    }

    asio::awaitable<std::shared_ptr<const StudentSnapshot>> snapshot() {
        RunState state;
        state.step = outcome_.steps_done;
        state.next_micro_batch = outcome_.steps_done * options_.training.micro_batches;
        state.tokens_seen = tokens_seen_;
        state.spec_json = options_.spec_json;
        auto copy = [this, state] { return student_.snapshot(state); };
        auto copying = run_on(executors_.compute, std::move(copy));
        std::shared_ptr<const StudentSnapshot> taken = co_await std::move(copying);
        updates_pending_ = false;
        co_return taken;
    }

    // The copy is taken at once; writing it goes on behind the next step. One write at a time.
    asio::awaitable<void> take_checkpoint() {
        std::shared_ptr<const StudentSnapshot> taken = co_await snapshot();
        while (writing_) {
            co_await written_.wait();
        }
        writing_ = true;
        if (!recording_.spawn(write_checkpoint(std::move(taken), outcome_.steps_done))) {
            writing_ = false;
        }
    }

    asio::awaitable<void> write_checkpoint(std::shared_ptr<const StudentSnapshot> taken, std::uint64_t step) {
        recorder_clock_.enter(StageClock::State::busy);
        const Instant began = steady_now();
        auto write = [this, taken, step] { return hooks_.commit_checkpoint(step, *taken); };
        auto writing = run_on(executors_.disk, std::move(write));
        Result<std::string> folder = co_await std::move(writing);
        const Instant now = steady_now();
        if (trace_ != nullptr) {
            trace_->span("recorder", "checkpoint", began, now, step);
        }
        recorder_clock_.enter(StageClock::State::wait_input);
        writing_ = false;
        written_.notify();
        if (!folder) {
            if (!error_) {
                error_ = folder.error();
            }
            cancel();
            co_return;
        }
        outcome_.checkpoint = *folder;
        if (hooks_.on_event) {
            hooks_.on_event(CheckpointEvent{step, *folder, to_seconds(now - began)});
        }
    }

    // After the last step, or at the last whole step of a run that ends early, failed ones included: nothing that was
    // trained is lost.
    asio::awaitable<void> last_checkpoint(bool whole) {
        const bool progressed = outcome_.steps_done > options_.first_step;
        if (!whole && !progressed) {
            co_return;
        }
        while (writing_) {
            co_await written_.wait();
        }
        std::shared_ptr<const StudentSnapshot> taken = co_await snapshot();
        if (whole) {
            outcome_.final_snapshot = taken;
        }
        co_await write_checkpoint(std::move(taken), outcome_.steps_done);
    }

    GraphExecutors executors_;
    Student& student_;
    bool has_teacher_;
    std::vector<TokenBatch> eval_;
    GraphOptions options_;
    GraphHooks hooks_;
    TraceWriter* trace_;
    std::unique_ptr<TeacherStage> teacher_;
    BoundedChannel<Staged> staged_;
    Signal want_;
    Signal written_{executors_.io};
    TaskGroup tasks_;
    TaskGroup recording_;
    StageClock staging_clock_{"staging"};
    StageClock student_clock_{"student"};
    StageClock optimizer_clock_{"optimizer"};
    StageClock recorder_clock_{"recorder"};
    ProgressMeter meter_;
    GraphOutcome outcome_;
    std::optional<Error> error_;
    std::exception_ptr staging_thrown_;
    Instant start_;
    std::uint64_t tokens_seen_ = 0;
    std::uint64_t nonfinite_steps_ = 0;
    bool updates_pending_ = false;
    bool filled_ = false;  // the first micro-batch was taken
    bool writing_ = false;
    bool cancelled_ = false;
    bool checkpoint_requested_ = false;
};

}  // namespace

std::unique_ptr<TrainingGraph> make_training_graph(GraphExecutors executors, Student& student, TeacherSource* source,
                                                   std::shared_ptr<BatchSource> batches, std::vector<TokenBatch> eval,
                                                   GraphOptions options, GraphHooks hooks, TraceWriter* trace) {
    return std::make_unique<StagedTrainingGraph>(std::move(executors), student, source, std::move(batches),
                                                 std::move(eval), std::move(options), std::move(hooks), trace);
}

}  // namespace distilld
