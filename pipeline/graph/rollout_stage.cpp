#include "pipeline/graph/rollout_stage.hpp"

#include <algorithm>
#include <boost/asio/this_coro.hpp>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "pipeline/async/run_on.hpp"
#include "pipeline/core/rollout/answer_lengths.hpp"
#include "pipeline/core/stage.hpp"
#include "pipeline/core/teacher_name.hpp"
#include "pipeline/graph/thrown_by.hpp"

namespace distilld {

namespace asio = boost::asio;

namespace {

/// One lane, which asks about steps as soon as their weights are published.
std::vector<GraphTeacher> writers_of(const GraphOptions& options, const GraphHooks& hooks) {
    GraphTeacher writers;
    writers.name = kRolloutLane;
    writers.source = options.rollout->source;
    writers.options = options.rollout->asking;
    writers.options.on_event = hooks.on_event;
    SchedulerOptions& scheduler = writers.options.scheduler;
    scheduler.first = options.steps.first_of(options.first_step);
    scheduler.end = scheduler.first;
    scheduler.growing = options.first_step < options.total_steps;
    if (!options.training.parallel) {
        take_one_after_the_other(scheduler);
    }
    return {std::move(writers)};
}

/// What is handed on, and what is kept of it.
struct GradedStep {
    std::vector<PlannedBatch> batches;
    RolloutStep answers;
    std::optional<RolloutEvent> shown{};
};

/// The dataset's rows in place of the prompts that have no answers.
TokenBatch rows_beside(const KeptAnswers& answers, const RolloutOptions& options) {
    std::vector<std::uint64_t> rows;
    for (std::size_t i = 0; i < answers.rows.size(); ++i) {
        if (answers.answers[i].ids.empty()) {
            rows.push_back(options.plan.dataset_row(answers.micro_batch, i, answers.rows[i]));
        }
    }
    return rows.empty() ? TokenBatch() : options.dataset->batch(answers.micro_batch, rows);
}

GradedStep graded_step(const std::vector<MicroBatch>& asked, std::uint64_t step, const RolloutOptions& options) {
    GradedStep graded;
    graded.answers.step = step;
    std::uint64_t target_tokens = 0;
    for (const MicroBatch& batch : asked) {
        const TokenBatch& prompts = *batch.tokens;
        KeptAnswers answers{prompts.number, options.plan.version_of(prompts.number), prompts.row_ids,
                            rollouts_of(*batch.targets, prompts.lengths)};
        PlannedBatch planned;
        planned.tokens =
            std::make_shared<const TokenBatch>(answered_batch(prompts, answers.answers, rows_beside(answers, options)));
        planned.index = batch.index;
        planned.number = batch.own_number;
        planned.ends_step = batch.ends_step;
        target_tokens += planned.tokens->target_tokens;
        graded.batches.push_back(std::move(planned));
        graded.answers.answers.push_back(std::move(answers));
    }
    for (PlannedBatch& planned : graded.batches) {
        planned.step_target_tokens = target_tokens;
    }
    return graded;
}

}  // namespace

RolloutStage::RolloutStage(const GraphExecutors& executors, Student& student, OptimizerStage& optimizer,
                           std::shared_ptr<BatchSource> batches, PlanStage& plan, TeacherStage& teacher,
                           const GraphOptions& options, const GraphHooks& hooks, TraceWriter* trace)
    : executors_(executors),
      student_(student),
      optimizer_(optimizer),
      plan_(plan),
      teacher_(teacher),
      options_(*options.rollout),
      on_event_(hooks.on_event),
      steps_(options.steps),
      first_step_(options.first_step),
      total_steps_(options.total_steps),
      prompts_(executors.io, executors.staging, std::move(batches), trace),
      decode_(executors.io, executors.decoding(), executors.decode_threads, trace),
      writers_(executors.io, prompts_, decode_, writers_of(options, hooks), trace),
      writing_(executors.io, hooks.on_event),
      keeping_(executors.io, hooks.on_event),
      writes_(executors.io, {.on_failure = [this](const std::exception_ptr& thrown) { fail(thrown); }}) {}

asio::awaitable<void> RolloutStage::run() {
    TaskGroup asking(executors_.io);
    if (!asking.spawn(writers_.run()) || !asking.spawn(collect())) {
        throw std::logic_error("rollout stage: its task group is closed");
    }
    co_await asking.join();
}

asio::awaitable<void> RolloutStage::join() {
    if (stopped_ || failure()) {
        writing_.give_up();
    }
    co_await writes_.join();
}

asio::awaitable<void> RolloutStage::collect() {
    co_await on_step_done(first_step_);
    for (std::uint64_t step = first_step_; step < total_steps_; ++step) {
        if (!co_await collect_step(step)) {
            teacher_.stop();
            co_return;
        }
        teacher_.set_end(steps_.first_of(step + 1), step + 1 == total_steps_);
    }
}

asio::awaitable<bool> RolloutStage::collect_step(std::uint64_t step) {
    std::vector<MicroBatch> asked;
    for (std::uint64_t n = steps_.first_of(step); n < steps_.first_of(step + 1); ++n) {
        writers_.on_wanted();
        std::optional<MicroBatch> batch = co_await writers_.next();
        if (!batch) {
            co_return false;
        }
        writers_.on_taken(n);
        writers_.on_released(n);
        writers_.on_trained(n);
        asked.push_back(std::move(*batch));
    }
    auto grade = [this, step, moved = std::move(asked)] {
        GradedStep graded = graded_step(moved, step, options_);
        if (on_event_ && shows_answers(step + 1) && !wants_no_answer(*moved.front().tokens)) {
            graded.shown = shown_answers(step + 1, *moved.front().tokens, graded.answers.answers.front(),
                                         options_.max_tokens, options_.text);
        }
        return graded;
    };
    GradedStep graded = co_await run_on(executors_.staging, std::move(grade));
    count(graded.answers);
    if (options_.keep) {
        std::function<Result<std::string>()> keep = [this, answers = graded.answers]() -> Result<std::string> {
            const Result<void> kept = options_.keep(answers);
            return kept ? Result<std::string>(std::string()) : kept.error();
        };
        const Result<std::string> kept = co_await keeping_.perform(executors_.disk, std::move(keep));
        if (!kept) {
            fail(kept.error());
            co_return false;
        }
    }
    if (graded.shown) {
        on_event_(*graded.shown);
    }
    for (PlannedBatch& planned : graded.batches) {
        plan_.keep(std::move(planned));
    }
    co_return true;
}

void RolloutStage::count(const RolloutStep& step) {
    for (const KeptAnswers& batch : step.answers) {
        for (const Rollout& answer : batch.answers) {
            if (answer.ids.empty()) {
                continue;
            }
            ++counters_.answers;
            counters_.tokens += answer.ids.size();
            count_length(counters_.lengths, answer.ids.size());
            counters_.cut += answer.ids.size() == options_.max_tokens ? 1 : 0;
            for (const float log_probability : answer.log_probabilities) {
                surprise_ -= log_probability;
            }
        }
    }
    const auto tokens = static_cast<double>(counters_.tokens);
    counters_.mean_length = counters_.answers > 0 ? tokens / static_cast<double>(counters_.answers) : 0;
    counters_.entropy = counters_.tokens > 0 ? surprise_ / tokens : 0;
}

asio::awaitable<void> RolloutStage::written() {
    while (writes_.size() > 0) {
        co_await writes_.changed().wait();
    }
}

asio::awaitable<void> RolloutStage::on_step_done(std::uint64_t steps) {
    // A run of more steps may go on from the last ones, whose next steps are written by those before.
    if (stopped_ || failure() || steps >= total_steps_) {
        co_return;
    }
    if (!options_.publish) {
        let_write(steps);
        co_return;
    }
    co_await written();
    co_await optimizer_.apply_updates(steps);
    auto copy = [this] { return student_.snapshot(RunState()); };
    std::shared_ptr<const StudentSnapshot> snapshot = co_await run_on(executors_.compute, std::move(copy));
    if (!writes_.spawn(publish(steps, std::move(snapshot)))) {
        throw std::logic_error("rollout stage: weights after the last");
    }
}

asio::awaitable<void> RolloutStage::publish(std::uint64_t steps, std::shared_ptr<const StudentSnapshot> snapshot) {
    std::function<Result<std::string>()> write = [this, steps, snapshot]() -> Result<std::string> {
        const Result<void> done = options_.publish(steps, *snapshot);
        return done ? Result<std::string>(std::string()) : done.error();
    };
    const Result<std::string> done = co_await writing_.perform(executors_.disk, std::move(write));
    if (!done) {
        fail(done.error());
        co_return;
    }
    let_write(steps);
}

void RolloutStage::let_write(std::uint64_t version) {
    const std::uint64_t end = version + options_.plan.staleness + 1;
    writers_.set_end(steps_.first_of(std::min(end, total_steps_)), end >= total_steps_);
}

void RolloutStage::fail(Error error) {
    if (!stopped_ && !failure_) {
        failure_ = std::move(error);
    }
    writers_.stop();
    teacher_.stop();
}

void RolloutStage::fail(const std::exception_ptr& thrown) {
    try {
        std::rethrow_exception(thrown);
    } catch (const std::exception& error) {
        fail(Error{ErrorKind::internal, std::string("rollout stage: ") + error.what()});
    } catch (...) {
        fail(Error{ErrorKind::internal, "rollout stage: unknown exception"});
    }
}

void RolloutStage::stop() {
    stopped_ = true;
    writing_.give_up();
    keeping_.give_up();
    writers_.stop();
}

StageTimes RolloutStage::times() const {
    StageTimes times = writers_.times();
    times.stage = stage_name(Stage::rollout);
    return times;
}

}  // namespace distilld
