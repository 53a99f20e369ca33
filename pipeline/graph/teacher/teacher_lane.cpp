#include "pipeline/graph/teacher/teacher_lane.hpp"

#include <algorithm>
#include <boost/asio/this_coro.hpp>
#include <boost/system/system_error.hpp>
#include <chrono>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/scope_exit.hpp"
#include "base/unix_time.hpp"
#include "pipeline/async/abort.hpp"
#include "pipeline/core/ranks/rank_rules.hpp"
#include "pipeline/core/token_count.hpp"
#include "pipeline/graph/teacher/fetch_counters.hpp"
#include "pipeline/graph/thrown_by.hpp"

namespace distilld {

namespace asio = boost::asio;

namespace {

constexpr Nanos kUnremarkable = std::chrono::seconds(1);  // without an answer

SchedulerOptions scheduler_options(const TeacherStageOptions& options, const TeacherSource* source) {
    SchedulerOptions scheduler = options.scheduler;
    // Without a teacher nothing is late, and planning a batch twice is wasted work.
    scheduler.hedge.enabled = scheduler.hedge.enabled && source != nullptr;
    return scheduler;
}

TeacherWatchOptions watch_options(const TeacherStageOptions& options, const TeacherSource* source) {
    TeacherWatchOptions watch = options.watch;
    watch.max_hold = options.scheduler.breaker.max_hold;
    watch.deadline = options.deadline;
    if (source != nullptr && options.names_silence) {
        const std::uint32_t more = options.scheduler.endpoints - 1;
        watch.asked = source->endpoint_name(0) + (more == 0 ? "" : " and " + std::to_string(more) + " more");
    }
    return watch;
}

}  // namespace

TeacherLane::TeacherLane(asio::any_io_executor executor, PlanStage& plan, DecodeStage& decode, GraphTeacher teacher,
                         std::uint32_t part, std::function<void(StageClock::State)> on_state, TraceWriter* trace)
    : plan_(plan),
      decode_(decode),
      source_(teacher.source),
      options_(std::move(teacher.options)),
      part_(part),
      on_state_(std::move(on_state)),
      trace_(trace),
      scheduler_(scheduler_options(options_, source_)),
      tally_(options_.scheduler.endpoints),
      watch_(options_.on_event, unix_now, watch_options(options_, source_)),
      requests_(executor, {.on_failure = [this](const std::exception_ptr& thrown) { fail(thrown); }}),
      changed_(executor),
      delivered_changed_(executor),
      request_ended_(executor) {}

asio::awaitable<void> TeacherLane::run() {
    const std::exception_ptr thrown = co_await thrown_by(issue_all());
    // The requests refer to us, so they are joined even if we are cancelled.
    co_await asio::this_coro::throw_if_cancelled(false);
    requests_.cancel();
    co_await requests_.join();
    on_state_(StageClock::State::idle);
    ended_ = true;
    delivered_changed_.notify();
    rethrow_if(thrown);
}

asio::awaitable<std::optional<TeacherLane::Answer>> TeacherLane::next() {
    while (delivered_.empty() && !ended_ && !stopped_ && !failure_ && (growing_ || next_out_ < end_)) {
        co_await delivered_changed_.wait();
    }
    // Batches delivered before a failure may still be trained on; after stop() nothing is wanted.
    if (delivered_.empty() || stopped_) {
        co_return std::nullopt;
    }
    std::optional<Answer> answer(std::move(delivered_.front()));
    delivered_.pop_front();
    ++next_out_;
    co_return answer;
}

void TeacherLane::stop() {
    stopped_ = true;
    wake();
    delivered_changed_.notify();
}

void TeacherLane::on_wanted() {
    const Instant now = steady_now();
    scheduler_.on_wanted(now);
    if (scheduler_.silent_since() || now - heard_ > std::min(kUnremarkable, options_.watch.grace)) {
        wake();  // an outage is reported when the student has to wait for its end
    }
}

void TeacherLane::on_released(std::uint64_t n) {
    scheduler_.on_released(n, steady_now());
    wake();
}

void TeacherLane::set_ceiling(std::uint32_t ceiling) {
    scheduler_.set_ceiling(share_of(ceiling, options_.sharers));
    wake();
}

void TeacherLane::set_held(bool held) {
    scheduler_.set_held(held);
    wake();
}

asio::awaitable<void> TeacherLane::requests_ended() {
    while (!handles_.empty()) {
        co_await request_ended_.wait();
    }
}

void TeacherLane::set_end(std::uint64_t end, bool last) {
    end_ = std::max(end_, end);
    growing_ = growing_ && !last;
    scheduler_.set_end(end, last);
    wake();
    delivered_changed_.notify();
}

FetchCounters TeacherLane::counters() const {
    FetchCounters counters = fetch_counters(scheduler_, tally_, source_);
    counters.requests -= not_sent_ + not_sent_yet_;
    return counters;
}

std::vector<RequestDurations> TeacherLane::durations() const {
    std::vector<RequestDurations> all;
    const std::uint32_t endpoints = asks() ? options_.scheduler.endpoints : 0;
    for (std::uint32_t endpoint = 0; endpoint < endpoints; ++endpoint) {
        std::vector<RequestDurations> of_one = tally_.durations(endpoint, source_->endpoint_name(endpoint));
        std::move(of_one.begin(), of_one.end(), std::back_inserter(all));
    }
    return all;
}

TeacherNews TeacherLane::news() const {
    TeacherNews news;
    news.failing_since = scheduler_.silent_since();
    news.wanted_since = scheduler_.wanted_since();
    if (on_the_wire_ > 0) {
        news.unanswered_since = heard_;
    }
    news.usual = scheduler_.latencies().percentile(0.95);
    return news;
}

/// Something happened that the scheduler does not know yet.
void TeacherLane::wake() {
    news_ = true;
    changed_.notify();
}

asio::awaitable<void> TeacherLane::issue_all() {
    on_state_(StageClock::State::wait_input);
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
    watch_.end();  // a wait that is over must not stay shown
}

void TeacherLane::tell_limits() {
    ConcurrencyLimits limits = concurrency_limits(scheduler_);
    if (asks() && limits != told_limits_) {
        source_->set_concurrency_limits(limits);
        told_limits_ = std::move(limits);
    }
}

Condition::TimePoint TeacherLane::next_deadline(Instant now) {
    const TeacherNews news = this->news();
    watch_.update(news, now);
    Condition::TimePoint deadline = Condition::kNever;
    for (const std::optional<Instant>& at : {scheduler_.next_wakeup(now), watch_.next_wakeup(news, now)}) {
        deadline = at ? std::min(deadline, to_steady(*at)) : deadline;
    }
    return deadline;
}

void TeacherLane::note_state() {
    if (on_the_wire_ > 0) {
        on_state_(StageClock::State::busy);
    } else if (scheduler_.in_flight() > 0 || scheduler_.buffered() > 0) {
        on_state_(StageClock::State::wait_output);
    } else {
        on_state_(StageClock::State::wait_input);
    }
}

void TeacherLane::perform(const IssueAction& issue) {
    // It may end before spawn() returns, and then removes its entry.
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

void TeacherLane::perform(const CancelAction& cancel) {
    const auto found = handles_.find(cancel.request);
    if (found != handles_.end()) {
        TaskHandle handle = found->second;
        handle.cancel();
    }
}

void TeacherLane::perform(const DeliverAction& deliver) {
    delivered_.push_back({decode_.take(key_of(deliver.micro_batch))});
    delivered_changed_.notify();
}

void TeacherLane::perform(const GiveUpAction& give_up) {
    std::string text = "micro-batch " + std::to_string(give_up.micro_batch) + ": ";
    if (give_up.silence > Nanos(0)) {
        const auto seconds = static_cast<std::int64_t>(to_seconds(give_up.silence));
        text +=
            "no endpoint has answered for " + std::to_string(seconds) + " s (/teacher/patience_secs is over); last: ";
    }
    text +=
        watch_.last_message() + " (" + to_string(give_up.kind) + ", " + std::to_string(give_up.attempts) + " attempts)";
    fail(teacher_error(std::move(text)));
}

void TeacherLane::fail(Error error) {
    failure_ = std::move(error);
    wake();
    delivered_changed_.notify();
}

void TeacherLane::fail(const std::exception_ptr& thrown) {
    try {
        std::rethrow_exception(thrown);
    } catch (const std::exception& error) {
        fail(Error{ErrorKind::internal, std::string("teacher stage: ") + error.what()});
    } catch (...) {
        fail(Error{ErrorKind::internal, "teacher stage: unknown exception"});
    }
}

/// One request of the scheduler, as a task.
asio::awaitable<void> TeacherLane::request(IssueAction issue) {
    const std::exception_ptr thrown = co_await thrown_by(carry_out(issue));
    handles_.erase(issue.request);
    request_ended_.notify();
    wake();
    rethrow_if(thrown);
}

asio::awaitable<std::shared_ptr<const TokenBatch>> TeacherLane::rows_for(IssueAction issue) {
    ++not_sent_yet_;
    const ScopeExit planned_one([this] { --not_sent_yet_; });
    const PlannedBatch planned = co_await plan_.batch(issue.micro_batch);
    co_return planned.parts.empty() ? planned.tokens : planned.parts.at(part_);
}

asio::awaitable<void> TeacherLane::carry_out(IssueAction issue) {
    const std::shared_ptr<const TokenBatch> tokens = co_await rows_for(issue);
    if (!asks()) {
        scheduler_.on_completed(issue.request, AnswerBytes(), steady_now());
        decode_.keep(key_of(issue.micro_batch), std::nullopt);
        co_return;
    }
    if (tokens->rows == 0) {
        if (scheduler_.on_nothing_to_ask(issue.request, steady_now())) {
            ++not_sent_;
            decode_.keep(key_of(issue.micro_batch), std::nullopt);
        }
        co_return;
    }
    const Instant began = steady_now();
    heard_ = on_the_wire_++ == 0 ? began : heard_;
    note_state();
    FetchResult<EncodedAnswer> answer = co_await ask(issue.endpoint, tokens);
    --on_the_wire_;
    note_state();
    // The request ends here: the wait for the decoder is not the teacher's fault.
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
        tally_.on_answered(issue.endpoint, input_positions(*tokens));
        take(issue, std::move(*targets), received);
    } else {
        report(issue, targets.error(), steady_now());
    }
}

/// Whether the request succeeded is known here; how long it took was known before.
asio::awaitable<FetchResult<TeacherTargets>> TeacherLane::decoded(IssueAction issue, EncodedAnswer answer, Nanos took) {
    auto decoding = decode_.decode(key_of(issue.micro_batch), std::move(answer));
    try {
        FetchResult<TeacherTargets> targets = co_await std::move(decoding);
        tally_.on_ended(issue.endpoint, targets ? std::nullopt : std::optional(targets.error().kind), took);
        co_return targets;
    } catch (const boost::system::system_error&) {
        tally_.on_ended(issue.endpoint, FailureKind::cancelled, took);  // it arrived, but is no longer wanted
        throw;
    }
}

void TeacherLane::report(const IssueAction& issue, const FetchError& error, Instant now) {
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

/// A source's operation_aborted is an ordinary failure. The group would take it for the end of a cancelled task, and
/// the scheduler would wait for its answer.
asio::awaitable<FetchResult<EncodedAnswer>> TeacherLane::ask(std::size_t endpoint,
                                                             std::shared_ptr<const TokenBatch> tokens) {
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

void TeacherLane::take(const IssueAction& issue, TeacherTargets answer, Instant now) {
    const std::uint64_t before = scheduler_.counters().completed;
    scheduler_.on_completed(issue.request, {answer.held_bytes, answer.wire_bytes}, now);
    // Otherwise it was cancelled meanwhile: another answer won.
    if (scheduler_.counters().completed > before) {
        faults_.forget(issue.micro_batch);
        decode_.keep(key_of(issue.micro_batch), std::move(answer));
    }
}

}  // namespace distilld
