#include "pipeline/graph/teacher_stage.hpp"

#include <algorithm>
#include <boost/asio/this_coro.hpp>
#include <boost/system/system_error.hpp>
#include <chrono>
#include <cmath>
#include <deque>
#include <exception>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/unix_time.hpp"
#include "pipeline/async/abort.hpp"
#include "pipeline/async/condition.hpp"
#include "pipeline/async/task_group.hpp"
#include "pipeline/core/endpoint_tally.hpp"
#include "pipeline/core/token_count.hpp"
#include "pipeline/graph/counted.hpp"
#include "pipeline/graph/fetch_counters.hpp"
#include "pipeline/graph/request_outcome.hpp"
#include "pipeline/graph/teacher_stage_parts.hpp"
#include "pipeline/graph/thrown_by.hpp"

namespace distilld {

namespace asio = boost::asio;

namespace {

class PrefetchingTeacherStage final : public TeacherStage {
  public:
    PrefetchingTeacherStage(asio::any_io_executor executor, MicroBatchPlan& plan, DecodeStage& decode,
                            TeacherSource* source, TeacherStageOptions options, TraceWriter* trace)
        : plan_(plan),
          decode_(decode),
          source_(source),
          options_(std::move(options)),
          trace_(trace),
          scheduler_(scheduler_options(options_, source)),
          tally_(options_.scheduler.endpoints),
          watch_(options_.on_event, unix_now, watch_options(options_, source)),
          requests_(executor, {.on_failure = [this](const std::exception_ptr& thrown) { fail(thrown); }}),
          changed_(executor),
          delivered_changed_(executor),
          request_ended_(executor) {}

    asio::awaitable<void> run() override {
        const std::exception_ptr thrown = co_await thrown_by(issue_all());
        // The requests refer to us, so they are joined even when we are cancelled.
        co_await asio::this_coro::throw_if_cancelled(false);
        requests_.cancel();
        co_await requests_.join();
        enter(StageClock::State::idle);
        ended_ = true;
        delivered_changed_.notify();
        rethrow_if(thrown);
    }

    asio::awaitable<std::optional<MicroBatch>> next() override {
        while (delivered_.empty() && !ended_ && !stopped_ && !failure_ && (growing_ || next_out_ < end_)) {
            co_await delivered_changed_.wait();
        }
        // What was delivered before a failure may still be trained on; after stop() nothing is wanted any more.
        if (delivered_.empty() || stopped_) {
            co_return std::nullopt;
        }
        std::optional<MicroBatch> batch(std::move(delivered_.front()));
        delivered_.pop_front();
        ++next_out_;
        co_return batch;
    }

    void stop() override {
        stopped_ = true;
        wake();
        delivered_changed_.notify();
    }

    const std::optional<Error>& failure() const override { return failure_; }

    void on_wanted() override {
        const Instant now = steady_now();
        scheduler_.on_wanted(now);
        if (scheduler_.silent_since() || now - heard_ > kUnremarkable) {
            wake();  // an outage is told of when the student has to wait for its end
        }
    }
    void on_taken(std::uint64_t n) override { scheduler_.on_taken(n, steady_now()); }
    void on_trained(std::uint64_t n) override { scheduler_.on_trained(n, steady_now()); }
    void on_released(std::uint64_t n) override {
        scheduler_.on_released(n, steady_now());
        plan_.release(n);
        wake();
    }
    void set_ceiling(std::uint32_t ceiling) override {
        scheduler_.set_ceiling(ceiling);
        wake();
    }
    void set_held(bool held) override {
        scheduler_.set_held(held);
        wake();
    }
    asio::awaitable<void> requests_ended() override {
        while (!handles_.empty()) {
            co_await request_ended_.wait();
        }
    }
    void set_end(std::uint64_t end, bool last) override {
        end_ = std::max(end_, end);
        growing_ = growing_ && !last;
        scheduler_.set_end(end, last);
        wake();
        delivered_changed_.notify();
    }
    bool short_of_batches() const override { return scheduler_.short_of_batches(); }

    FetchCounters counters() const override {
        FetchCounters counters = fetch_counters(scheduler_, tally_, source_);
        counters.requests -= not_sent_ + not_sent_yet_;
        return counters;
    }

    Nanos waited() const override { return scheduler_.waited(steady_now()); }
    Nanos lost() const override { return watch_.lost(); }

    std::vector<RequestDurations> durations() const override {
        std::vector<RequestDurations> all;
        for (std::uint32_t endpoint = 0; endpoint < endpoint_count(); ++endpoint) {
            std::vector<RequestDurations> of_one = tally_.durations(endpoint, source_->endpoint_name(endpoint));
            std::move(of_one.begin(), of_one.end(), std::back_inserter(all));
        }
        return all;
    }

    std::vector<StageQueue> queues() const override {
        std::vector<StageQueue> queues;
        const auto add = [&queues](Stage stage, std::size_t items, std::size_t capacity) {
            queues.push_back({std::string(stage_name(stage)), items, capacity});
        };
        if (source_ != nullptr) {
            add(Stage::decode, decode_.waiting(), scheduler_.limit());  // each is a request in flight still
        }
        add(Stage::staging, decode_.kept() + delivered_.size(), scheduler_.window());
        return queues;
    }

    StageTimes times() const override { return clock_.times(); }

  private:
    static constexpr Nanos kUnremarkable = std::chrono::seconds(1);  // without an answer

    [[nodiscard]] TeacherNews news() const {
        TeacherNews news;
        news.failing_since = scheduler_.silent_since();
        news.wanted_since = scheduler_.wanted_since();
        if (on_the_wire_ > 0) {
            news.unanswered_since = heard_;
        }
        news.usual = scheduler_.latencies().percentile(0.95);
        return news;
    }

    /// None in plain training.
    [[nodiscard]] std::uint32_t endpoint_count() const { return source_ != nullptr ? options_.scheduler.endpoints : 0; }

    [[nodiscard]] bool over() const { return stopped_ || failure_ || scheduler_.done(); }

    /// Something happened that the scheduler has not been asked about yet.
    void wake() {
        news_ = true;
        changed_.notify();
    }

    asio::awaitable<void> issue_all() {
        enter(StageClock::State::wait_input);
        for (const std::size_t endpoint : options_.absent_endpoints) {
            scheduler_.on_endpoint_absent(static_cast<std::uint32_t>(endpoint), steady_now());
        }
        while (!over()) {
            news_ = false;
            const Instant now = steady_now();
            const std::vector<SchedulerAction> actions = scheduler_.poll(now);
            tell_limits();
            for (const SchedulerAction& action : actions) {
                std::visit([this](const auto& what) { perform(what); }, action);
            }
            note_state();
            if (options_.on_short && scheduler_.short_of_batches()) {
                options_.on_short();
            }
            // A request may have been answered while it was started.
            if (news_) {
                continue;
            }
            const Condition::TimePoint deadline = next_deadline(now);
            co_await changed_.wait(deadline);
        }
        watch_.end();  // what is waited for no longer does not stay on show
    }

    void tell_limits() {
        ConcurrencyLimits limits = concurrency_limits(scheduler_);
        if (source_ != nullptr && limits != told_limits_) {
            source_->set_concurrency_limits(limits);
            told_limits_ = std::move(limits);
        }
    }

    Condition::TimePoint next_deadline(Instant now) {
        const TeacherNews news = this->news();
        watch_.update(news, now);
        Condition::TimePoint deadline = Condition::kNever;
        for (const std::optional<Instant>& at : {scheduler_.next_wakeup(now), watch_.next_wakeup(news, now)}) {
            deadline = at ? std::min(deadline, to_steady(*at)) : deadline;
        }
        return deadline;
    }

    void enter(StageClock::State state) {
        clock_.enter(state);
        if (options_.on_state) {
            options_.on_state(state);
        }
    }

    [[nodiscard]] AnswerKey key_of(std::uint64_t micro_batch) const { return {micro_batch, options_.part}; }

    void note_state() {
        if (on_the_wire_ > 0) {
            enter(StageClock::State::busy);
        } else if (scheduler_.in_flight() > 0 || scheduler_.buffered() > 0) {
            enter(StageClock::State::wait_output);
        } else {
            enter(StageClock::State::wait_input);
        }
    }

    void perform(const IssueAction& issue) {
        // It may end before spawn() returns, and then takes its entry away.
        handles_.emplace(issue.request, TaskHandle());
        TaskHandle handle = requests_.spawn(request(issue));
        if (!handle) {
            throw std::logic_error("teacher stage: a request after the last");
        }
        const auto found = handles_.find(issue.request);
        if (found != handles_.end()) {
            found->second = std::move(handle);
        }
    }

    void perform(const CancelAction& cancel) {
        const auto found = handles_.find(cancel.request);
        if (found != handles_.end()) {
            TaskHandle handle = found->second;
            handle.cancel();
        }
    }

    void perform(const DeliverAction& deliver) {
        const PlannedBatch planned = plan_.kept(deliver.micro_batch);
        auto targets = decode_.take(key_of(deliver.micro_batch));
        delivered_.push_back(MicroBatch{planned.tokens, std::move(targets), planned.step_target_tokens});
        delivered_changed_.notify();
    }

    void perform(const GiveUpAction& give_up) {
        std::string text = "micro-batch " + std::to_string(give_up.micro_batch) + ": ";
        if (give_up.silence > Nanos(0)) {
            const auto seconds = static_cast<std::int64_t>(to_seconds(give_up.silence));
            text += "no endpoint has answered for " + std::to_string(seconds) +
                    " s (/teacher/patience_secs is over); last: ";
        }
        text += watch_.last_message() + " (" + to_string(give_up.kind) + ", " + std::to_string(give_up.attempts) +
                " attempts)";
        failure_ = teacher_error(std::move(text));
        wake();
        delivered_changed_.notify();
    }

    void fail(const std::exception_ptr& thrown) {
        try {
            std::rethrow_exception(thrown);
        } catch (const std::exception& error) {
            failure_ = Error{ErrorKind::internal, std::string("teacher stage: ") + error.what()};
        } catch (...) {
            failure_ = Error{ErrorKind::internal, "teacher stage: unknown exception"};
        }
        wake();
        delivered_changed_.notify();
    }

    /// One request of the scheduler, as a task.
    asio::awaitable<void> request(IssueAction issue) {
        const std::exception_ptr thrown = co_await thrown_by(carry_out(issue));
        handles_.erase(issue.request);
        request_ended_.notify();
        wake();
        rethrow_if(thrown);
    }

    asio::awaitable<PlannedBatch> planned_for(IssueAction issue) {
        const Counted planning_one(not_sent_yet_);
        co_return co_await plan_.batch(issue.micro_batch);
    }

    asio::awaitable<void> carry_out(IssueAction issue) {
        const PlannedBatch planned = co_await planned_for(issue);
        if (source_ == nullptr) {
            scheduler_.on_completed(issue.request, AnswerBytes(), steady_now());
            decode_.keep(issue.micro_batch, std::nullopt);
            co_return;
        }
        if (planned.tokens->rows == 0) {
            if (scheduler_.on_nothing_to_ask(issue.request, steady_now())) {
                ++not_sent_;
                decode_.keep(key_of(issue.micro_batch), std::nullopt);
            }
            co_return;
        }
        const Instant began = steady_now();
        heard_ = on_the_wire_++ == 0 ? began : heard_;
        note_state();
        FetchResult<EncodedAnswer> answer = co_await ask(issue.endpoint, planned.tokens);
        --on_the_wire_;
        note_state();
        // The request ends here; how long the bytes wait for their turn to be decoded is not the teacher's doing.
        const Instant received = steady_now();
        heard_ = received;
        if (trace_ != nullptr) {
            trace_->overlapping_span(Stage::teacher, span_name(issue, answer), began, received, issue.micro_batch);
        }
        const Nanos took = received - began;
        if (!answer) {
            tally_.on_ended(issue.endpoint, answer.error().kind, took);
            report(issue, answer.error(), received);
            co_return;
        }
        FetchResult<TeacherTargets> targets = co_await decoded(issue, std::move(*answer), took);
        if (targets) {
            tally_.on_answered(issue.endpoint, input_positions(*planned.tokens));
            take(issue, std::move(*targets), received);
        } else {
            report(issue, targets.error(), steady_now());
        }
    }

    /// Whether the request was a success shows here; how long it took was known before.
    asio::awaitable<FetchResult<TeacherTargets>> decoded(IssueAction issue, EncodedAnswer answer, Nanos took) {
        auto decoding = decode_.decode(key_of(issue.micro_batch), std::move(answer));
        try {
            FetchResult<TeacherTargets> targets = co_await std::move(decoding);
            tally_.on_ended(issue.endpoint, targets ? std::nullopt : std::optional(targets.error().kind), took);
            co_return targets;
        } catch (const boost::system::system_error&) {
            tally_.on_ended(issue.endpoint, FailureKind::cancelled, took);  // it came, and nobody wants it any more
            throw;
        }
    }

    void report(const IssueAction& issue, const FetchError& error, Instant now) {
        const FailureKind kind = faults_.kind_of(issue.micro_batch, issue.endpoint, error);
        if (kind != FailureKind::cancelled) {
            watch_.on_failure(kind, error.message, now);
        }
        if (error.retry_after) {
            watch_.on_retry_after(source_->endpoint_name(issue.endpoint), *error.retry_after, now);
        }
        const std::uint64_t openings = scheduler_.counters().breaker_openings;
        scheduler_.on_failed(issue.request, kind, error.retry_after, now);
        if (scheduler_.counters().breaker_openings > openings && kind != FailureKind::cancelled) {
            watch_.on_breaker_opened(source_->endpoint_name(issue.endpoint), now);
        }
    }

    /// A source's operation_aborted is a failure like another: the group would take it for the end of a task that was
    /// cancelled, and the scheduler would wait for its answer.
    asio::awaitable<FetchResult<EncodedAnswer>> ask(std::size_t endpoint, std::shared_ptr<const TokenBatch> tokens) {
        auto fetching = source_->fetch(endpoint, std::move(tokens), options_.deadline);
        try {
            co_return co_await std::move(fetching);
        } catch (const boost::system::system_error& error) {
            if (!is_abort(error.code())) {
                throw;
            }
        }
        co_return FetchError{FailureKind::cancelled, source_->endpoint_name(endpoint) + ": cancelled", std::nullopt};
    }

    void take(const IssueAction& issue, TeacherTargets answer, Instant now) {
        const std::uint64_t before = scheduler_.counters().completed;
        scheduler_.on_completed(issue.request, {answer.held_bytes, answer.wire_bytes}, now);
        // Otherwise it was cancelled meanwhile: another answer won.
        if (scheduler_.counters().completed > before) {
            faults_.forget(issue.micro_batch);
            decode_.keep(key_of(issue.micro_batch), std::move(answer));
        }
    }

    MicroBatchPlan& plan_;
    DecodeStage& decode_;
    TeacherSource* source_;
    TeacherStageOptions options_;
    TraceWriter* trace_;
    PrefetchScheduler scheduler_;
    EndpointTally tally_;
    TeacherWatch watch_;
    TaskGroup requests_;
    std::map<RequestId, TaskHandle> handles_;  // of the requests under way
    RepeatedFaults faults_;
    Condition changed_;
    Condition delivered_changed_;
    Condition request_ended_;
    StageClock clock_{Stage::teacher};
    std::deque<MicroBatch> delivered_;  // bounded by the scheduler's window
    std::uint64_t next_out_ = options_.scheduler.first;
    std::uint64_t not_sent_ = 0;      // requests about micro-batches in which the teacher has no row
    std::uint64_t not_sent_yet_ = 0;  // whose micro-batch is being planned
    std::uint32_t on_the_wire_ = 0;   // requests whose bytes have not come yet
    std::uint64_t end_ = options_.scheduler.end;
    bool growing_ = options_.scheduler.growing;
    std::optional<ConcurrencyLimits> told_limits_;
    std::optional<Error> failure_;
    Instant heard_{};  // when the teacher was last heard of, or asked for the first time since
    bool news_ = false;
    bool stopped_ = false;
    bool ended_ = false;
};

}  // namespace

std::unique_ptr<TeacherStage> make_teacher_stage(asio::any_io_executor executor, MicroBatchPlan& plan,
                                                 DecodeStage& decode, TeacherSource* source,
                                                 TeacherStageOptions options, TraceWriter* trace) {
    return std::make_unique<PrefetchingTeacherStage>(std::move(executor), plan, decode, source, std::move(options),
                                                     trace);
}

}  // namespace distilld
