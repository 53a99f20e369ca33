#include "pipeline/graph/joined_teacher_stage.hpp"

#include <algorithm>
#include <boost/asio/error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/system/system_error.hpp>
#include <functional>
#include <iterator>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include "pipeline/async/condition.hpp"
#include "pipeline/async/run_on.hpp"
#include "pipeline/async/task_group.hpp"
#include "pipeline/core/teacher_name.hpp"
#include "pipeline/graph/teacher_join.hpp"

namespace distilld {

namespace asio = boost::asio;

namespace {

/// The plan that all teachers ask: each micro-batch is made once, whoever needs it first.
class SharedPlan {
  public:
    SharedPlan(asio::any_io_executor executor, PlanStage& plan) : plan_(plan), made_(std::move(executor)) {}

    asio::awaitable<PlannedBatch> batch(std::uint64_t number) {
        while (under_way_.contains(number)) {
            co_await made_.wait();
        }
        const UnderWay making(*this, number);
        co_return co_await plan_.batch(number);
    }
    [[nodiscard]] PlannedBatch kept(std::uint64_t number) const { return plan_.kept(number); }
    void release(std::uint64_t number) { plan_.release(number); }

  private:
    struct UnderWay {
        UnderWay(SharedPlan& the_plan, std::uint64_t the_number) : plan(the_plan), number(the_number) {
            plan.under_way_.insert(number);
        }
        ~UnderWay() {
            plan.under_way_.erase(number);
            plan.made_.notify();
        }
        UnderWay(const UnderWay&) = delete;
        UnderWay& operator=(const UnderWay&) = delete;

        SharedPlan& plan;
        std::uint64_t number;
    };

    PlanStage& plan_;
    Condition made_;
    std::set<std::uint64_t> under_way_;  // bounded by the requests in flight
};

/// The rows of one teacher. Micro-batches are released by the joined stage, once for all.
class PartPlan final : public MicroBatchPlan {
  public:
    PartPlan(SharedPlan& plan, std::size_t part) : plan_(plan), part_(part) {}

    asio::awaitable<PlannedBatch> batch(std::uint64_t number) override {
        const PlannedBatch whole = co_await plan_.batch(number);
        co_return mine(whole);
    }
    PlannedBatch kept(std::uint64_t number) const override { return mine(plan_.kept(number)); }
    void release(std::uint64_t /*number*/) override {}

  private:
    [[nodiscard]] PlannedBatch mine(const PlannedBatch& whole) const {
        return PlannedBatch{whole.parts.at(part_), whole.step_target_tokens};
    }

    SharedPlan& plan_;
    std::size_t part_;
};

TeacherCounters counters_of(const std::string& teacher, const FetchCounters& fetch, Nanos waited) {
    TeacherCounters counters;
    counters.teacher = teacher;
    counters.wait_seconds = to_seconds(waited);
    counters.requests = fetch.requests;
    counters.completed = fetch.completed;
    for (const auto& [kind, count] : fetch.failures) {
        counters.failures += count;
    }
    for (const EndpointCounters& endpoint : fetch.endpoints) {
        counters.tokens += endpoint.tokens;
    }
    counters.bytes_received = fetch.bytes_received;
    counters.concurrency = fetch.concurrency;
    counters.window = fetch.window;
    counters.in_flight = fetch.in_flight;
    counters.buffered = fetch.buffered;
    counters.open_endpoints = fetch.open_endpoints;
    counters.latency_p50_seconds = fetch.latency_p50_seconds;
    counters.latency_p95_seconds = fetch.latency_p95_seconds;
    counters.store = fetch.store;
    return counters;
}

void add(std::optional<StoreCounters>& sum, const std::optional<StoreCounters>& one) {
    if (!one) {
        return;
    }
    StoreCounters& all = sum ? *sum : sum.emplace();
    all.rows += one->rows;
    all.held_rows += one->held_rows;
    all.sealed_rows += one->sealed_rows;
    all.sealed_bytes += one->sealed_bytes;
}

void add(FetchCounters& sum, FetchCounters one, bool first) {
    sum.requests += one.requests;
    sum.completed += one.completed;
    sum.retries += one.retries;
    sum.hedges += one.hedges;
    sum.hedge_wins += one.hedge_wins;
    for (const auto& [kind, count] : one.failures) {
        sum.failures[kind] += count;
    }
    sum.breaker_openings += one.breaker_openings;
    sum.bytes_received += one.bytes_received;
    sum.open_endpoints += one.open_endpoints;
    sum.concurrency += one.concurrency;
    sum.window = std::max(sum.window, one.window);
    sum.in_flight += one.in_flight;
    sum.buffered = first ? one.buffered : std::min(sum.buffered, one.buffered);
    sum.latency_p50_seconds = std::max(sum.latency_p50_seconds, one.latency_p50_seconds);
    sum.latency_p95_seconds = std::max(sum.latency_p95_seconds, one.latency_p95_seconds);
    std::ranges::move(one.endpoints, std::back_inserter(sum.endpoints));
    add(sum.store, one.store);
}

class JoinedTeacherStage final : public TeacherStage {
  public:
    JoinedTeacherStage(asio::any_io_executor executor, asio::any_io_executor join, PlanStage& plan, DecodeStage& decode,
                       std::vector<GraphTeacher> teachers, TraceWriter* trace)
        : executor_(std::move(executor)), join_(std::move(join)), plan_(executor_, plan), decode_(decode) {
        parts_.reserve(teachers.size());
        for (GraphTeacher& teacher : teachers) {
            const std::size_t index = parts_.size();
            Part& part = parts_.emplace_back();
            part.name = std::move(teacher.name);
            part.plan = std::make_unique<PartPlan>(plan_, index);
            next_ = teacher.options.scheduler.first;
            end_ = teacher.options.scheduler.end;
            part.stage = make_teacher_stage(executor_, *part.plan, decode, teacher.source,
                                            part_options(std::move(teacher.options), index), trace);
        }
    }

    asio::awaitable<void> run() override {
        TaskGroup running(executor_);
        for (Part& part : parts_) {
            if (!running.spawn(run_part(part))) {
                throw std::logic_error("joined teacher stage: its task group is closed");
            }
        }
        co_await running.join();
        const auto state = co_await asio::this_coro::cancellation_state;
        if (state.cancelled() != asio::cancellation_type::none) {
            throw boost::system::system_error(asio::error::operation_aborted);
        }
    }

    asio::awaitable<std::optional<MicroBatch>> next() override {
        if (next_ >= end_) {
            co_return std::nullopt;
        }
        std::vector<std::optional<TeacherTargets>> answers;
        for (Part& part : parts_) {
            std::optional<MicroBatch> answered = co_await part.stage->next();
            if (!answered) {
                co_return std::nullopt;
            }
            answers.push_back(std::move(answered->targets));
        }
        const PlannedBatch planned = plan_.kept(next_);
        auto work = [planned, moved = std::make_shared<decltype(answers)>(std::move(answers))] {
            return join_teachers(planned, std::move(*moved));
        };
        Result<TeacherTargets> joined = co_await run_on(join_, std::move(work));
        if (!joined) {
            fail(Error{joined.error().kind, "micro-batch " + std::to_string(next_) + ": " + joined.error().message});
            co_return std::nullopt;
        }
        ++next_;
        co_return MicroBatch{planned.tokens, std::move(*joined), planned.step_target_tokens};
    }

    void stop() override {
        for (Part& part : parts_) {
            part.stage->stop();
        }
    }
    const std::optional<Error>& failure() const override { return failure_; }

    void on_wanted() override {
        for (Part& part : parts_) {
            part.stage->on_wanted();
        }
    }
    void on_taken(std::uint64_t n) override {
        for (Part& part : parts_) {
            part.stage->on_taken(n);
        }
    }
    void on_trained(std::uint64_t n) override {
        for (Part& part : parts_) {
            part.stage->on_trained(n);
        }
    }
    void on_released(std::uint64_t n) override {
        for (Part& part : parts_) {
            part.stage->on_released(n);
        }
        plan_.release(n);
    }
    void set_ceiling(std::uint32_t ceiling) override {
        for (Part& part : parts_) {
            part.stage->set_ceiling(ceiling);
        }
    }
    void set_held(bool held) override {
        for (Part& part : parts_) {
            part.stage->set_held(held);
        }
    }
    asio::awaitable<void> requests_ended() override {
        for (Part& part : parts_) {
            co_await part.stage->requests_ended();
        }
    }
    void set_end(std::uint64_t end, bool last) override {
        for (Part& part : parts_) {
            part.stage->set_end(end, last);
        }
    }
    bool short_of_batches() const override {
        return std::ranges::any_of(parts_, [](const Part& part) { return part.stage->short_of_batches(); });
    }

    FetchCounters counters() const override {
        FetchCounters sum;
        for (const Part& part : parts_) {
            FetchCounters one = part.stage->counters();
            sum.teachers.push_back(counters_of(part.name, one, part.stage->waited()));
            add(sum, std::move(one), &part == &parts_.front());
        }
        return sum;
    }

    Nanos waited() const override {
        Nanos most{0};
        for (const Part& part : parts_) {
            most = std::max(most, part.stage->waited());
        }
        return most;
    }

    Nanos lost() const override {
        Nanos most{0};
        for (const Part& part : parts_) {
            most = std::max(most, part.stage->lost());
        }
        return most;
    }

    std::vector<RequestDurations> durations() const override {
        std::vector<RequestDurations> all;
        for (const Part& part : parts_) {
            std::ranges::move(part.stage->durations(), std::back_inserter(all));
        }
        return all;
    }

    std::vector<StageQueue> queues() const override {
        const FetchCounters sum = counters();
        const std::uint64_t places = std::uint64_t{sum.window} * parts_.size();
        return {{std::string(stage_name(Stage::decode)), decode_.waiting(), sum.concurrency},
                {std::string(stage_name(Stage::staging)), decode_.kept(), places}};
    }

    StageTimes times() const override { return clock_.times(); }

  private:
    struct Part {
        std::string name;
        std::unique_ptr<PartPlan> plan;
        std::unique_ptr<TeacherStage> stage;
        StageClock::State state = StageClock::State::idle;
        std::optional<WaitingEvent> waiting;  // what it waits for
    };

    TeacherStageOptions part_options(TeacherStageOptions options, std::size_t index) {
        options.part = static_cast<std::uint32_t>(index);
        options.scheduler.one_of_several = true;
        options.on_state = [this, index](StageClock::State state) { on_state(parts_[index], state); };
        if (options.on_event) {
            options.on_event = [this, index, emit = options.on_event](const WorkerEvent& event) {
                tell(parts_[index], event, emit);
            };
        }
        return options;
    }

    static std::string in_words_of(const Part& part, std::string text) {
        return "teacher " + part.name + ": " + of_named_teacher(std::move(text), part.name);
    }

    /// Its events, which name it. While several wait, one of them is on show until it need not any longer.
    void tell(Part& part, const WorkerEvent& event, const std::function<void(const WorkerEvent&)>& emit) {
        if (const auto* log = std::get_if<LogEvent>(&event)) {
            emit(LogEvent{log->level, in_words_of(part, log->message)});
            return;
        }
        const auto* waiting = std::get_if<WaitingEvent>(&event);
        if (waiting == nullptr) {
            emit(event);
            return;
        }
        part.waiting.reset();
        if (!waiting->code.empty()) {
            part.waiting = WaitingEvent{waiting->code, in_words_of(part, waiting->message), waiting->since};
            emit(*part.waiting);
            return;
        }
        const auto other = std::ranges::find_if(parts_, [](const Part& one) { return one.waiting.has_value(); });
        const std::string end = waiting->message.empty() ? std::string() : in_words_of(part, waiting->message);
        emit(other != parts_.end() ? *other->waiting : WaitingEvent{"", end, 0});
    }

    /// The busiest of them decides.
    void on_state(Part& part, StageClock::State state) {
        part.state = state;
        using enum StageClock::State;
        for (const StageClock::State first : {busy, wait_output, wait_input}) {
            if (std::ranges::any_of(parts_, [first](const Part& one) { return one.state == first; })) {
                clock_.enter(first);
                return;
            }
        }
        clock_.enter(idle);
    }

    asio::awaitable<void> run_part(Part& part) {
        co_await part.stage->run();
        if (const std::optional<Error>& failure = part.stage->failure()) {
            fail(Error{failure->kind, in_words_of(part, failure->message)});
        }
    }

    /// Nothing that is not handed on yet would be of use: the others end too.
    void fail(Error error) {
        if (!failure_) {
            failure_ = std::move(error);
        }
        stop();
    }

    asio::any_io_executor executor_;
    asio::any_io_executor join_;
    SharedPlan plan_;
    DecodeStage& decode_;
    std::vector<Part> parts_;
    StageClock clock_{Stage::teacher};
    std::uint64_t next_ = 0;
    std::uint64_t end_ = 0;
    std::optional<Error> failure_;
};

}  // namespace

std::unique_ptr<TeacherStage> make_joined_teacher_stage(asio::any_io_executor executor, asio::any_io_executor join,
                                                        PlanStage& plan, DecodeStage& decode,
                                                        std::vector<GraphTeacher> teachers, TraceWriter* trace) {
    return std::make_unique<JoinedTeacherStage>(std::move(executor), std::move(join), plan, decode, std::move(teachers),
                                                trace);
}

}  // namespace distilld
