#include "pipeline/graph/evaluation.hpp"

#include <algorithm>
#include <boost/asio/this_coro.hpp>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

#include "pipeline/async/run_on.hpp"
#include "pipeline/async/task_group.hpp"
#include "pipeline/graph/decode_stage.hpp"
#include "pipeline/graph/thrown_by.hpp"

namespace distilld {

namespace asio = boost::asio;

namespace {

/// Divides the training's window in bytes: that one is full at the same time.
constexpr std::uint64_t kWindowShare = 4;

void add(EvalStats& total, const EvalStats& more) {
    total.target_tokens += more.target_tokens;
    total.ce_sum += more.ce_sum;
    total.teacher_tokens += more.teacher_tokens;
    total.kl_sum += more.kl_sum;
    total.agreeing += more.agreeing;
    total.accepted += more.accepted;
}

asio::awaitable<EvalStats> evaluate_one(Student& student, MicroBatch batch, asio::any_io_executor compute) {
    auto work = [&student, moved = std::make_shared<const MicroBatch>(std::move(batch))] {
        return student.evaluate(*moved);
    };
    co_return co_await run_on(std::move(compute), std::move(work));
}

}  // namespace

asio::awaitable<std::optional<EvalStats>> evaluate_batches(Student& student, const EvaluationSet& set,
                                                           std::uint64_t first, GraphExecutors executors,
                                                           std::function<bool()> stopped) {
    EvalStats total;
    PlanStage plan(executors.io, executors.staging, set.batches, nullptr);
    for (std::uint64_t n = first; n < set.count; ++n) {
        if (stopped()) {
            co_return std::nullopt;
        }
        const PlannedBatch planned = co_await plan.batch(n);
        plan.release(n);
        MicroBatch batch;
        batch.tokens = planned.tokens;
        add(total, co_await evaluate_one(student, std::move(batch), executors.compute));
    }
    co_return total;
}

Evaluator::Evaluator(GraphExecutors executors, Student& student, EvaluationSet set, const GraphOptions& options,
                     std::function<void(const WorkerEvent&)> on_event)
    : executors_(std::move(executors)),
      student_(student),
      set_(std::move(set)),
      parallel_(options.training.parallel),
      on_event_(std::move(on_event)) {}

asio::awaitable<std::optional<EvalStats>> Evaluator::run() {
    if (!set_.empty() && !set_.teachers.empty()) {
        co_return co_await ask_and_evaluate();
    }
    auto evaluating = evaluate_batches(student_, set_, 0, executors_, [this] { return cancelled_; });
    co_return co_await std::move(evaluating);
}

asio::awaitable<std::optional<EvalStats>> Evaluator::ask_and_evaluate() {
    PlanStage plan(executors_.io, executors_.staging, set_.batches, nullptr);
    DecodeStage decode(executors_.io, executors_.decoding(), executors_.decode_threads, nullptr);
    TeacherStage teacher(executors_.io, plan, decode, asked(), nullptr);
    if (ceiling_) {
        teacher.set_ceiling(*ceiling_);
    }
    TaskGroup asking(executors_.io);
    if (!asking.spawn(teacher.run())) {
        throw std::logic_error("evaluation: its task group is closed");
    }
    asking_ = &teacher;
    EvalStats total;
    std::uint64_t evaluated = 0;
    std::exception_ptr thrown;
    try {
        evaluated = co_await evaluate_answered(teacher, total);
    } catch (...) {
        thrown = std::current_exception();
    }
    // The requests refer to our members, so they are joined even if we are cancelled.
    const bool throwing = co_await asio::this_coro::throw_if_cancelled();
    co_await asio::this_coro::throw_if_cancelled(false);
    asking_ = nullptr;
    teacher.stop();
    const std::exception_ptr unasked = co_await thrown_by(asking.join());
    if (set_.turn) {
        set_.turn->give_back();
    }
    co_await asio::this_coro::throw_if_cancelled(throwing);
    rethrow_if(thrown);
    rethrow_if(unasked);
    if (cancelled_) {
        co_return std::nullopt;
    }
    if (evaluated == set_.count) {
        co_return total;
    }
    if (on_event_ && teacher.failure()) {
        on_event_(LogEvent{"warn",
                           "the teacher does not answer for the held-out rows, so this evaluation has no "
                           "KL and no agreement: " +
                               teacher.failure()->message});
    }
    auto alone = evaluate_batches(student_, set_, evaluated, executors_, [this] { return cancelled_; });
    const std::optional<EvalStats> rest = co_await std::move(alone);
    if (!rest) {
        co_return std::nullopt;
    }
    add(total, *rest);
    // Figures of only some rows would not compare with those of the next evaluation.
    total.teacher_tokens = 0;
    total.kl_sum = 0;
    total.agreeing = 0;
    total.accepted = 0;
    co_return total;
}

/// Until all are evaluated or answers stop; returns how many were.
asio::awaitable<std::uint64_t> Evaluator::evaluate_answered(TeacherStage& teacher, EvalStats& total) {
    std::uint64_t n = 0;
    for (; n < set_.count && !cancelled_; ++n) {
        teacher.on_wanted();
        std::optional<MicroBatch> batch = co_await teacher.next();
        if (!batch) {
            break;
        }
        teacher.on_taken(n);
        if (parallel_) {
            teacher.on_released(n);
        }
        add(total, co_await evaluate_one(student_, std::move(*batch), executors_.compute));
        teacher.on_trained(n);
        if (!parallel_) {
            teacher.on_released(n);
        }
    }
    co_return n;
}

std::vector<GraphTeacher> Evaluator::asked() const {
    std::vector<GraphTeacher> teachers = set_.teachers;
    for (GraphTeacher& teacher : teachers) {
        SchedulerOptions& scheduler = teacher.options.scheduler;
        teacher.options.on_event = on_event_;
        scheduler.first = 0;
        scheduler.end = set_.count;
        scheduler.window.max_bytes /= kWindowShare;
        const Nanos silence = kMaxEvaluationSilence;
        scheduler.retry.outage_timeout = scheduler.retry.outage_timeout > Nanos(0)
                                             ? std::min(scheduler.retry.outage_timeout, silence)
                                             : silence;  // 0 is without end
        if (!parallel_) {
            take_one_after_the_other(scheduler);
        }
    }
    return teachers;
}

void Evaluator::cancel() {
    cancelled_ = true;
    if (asking_ != nullptr) {
        asking_->stop();
    }
}

void Evaluator::set_ceiling(std::uint32_t ceiling) {
    ceiling_ = ceiling;
    if (asking_ != nullptr) {
        asking_->set_ceiling(ceiling);
    }
}

}  // namespace distilld
