#include "pipeline/graph/teacher_stage.hpp"

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <deque>
#include <exception>
#include <map>
#include <unordered_map>
#include <utility>

#include "pipeline/async/run_on.hpp"
#include "pipeline/async/signal.hpp"
#include "pipeline/graph/stage_clock.hpp"

namespace distilld {

namespace asio = boost::asio;

namespace {

class PrefetchingTeacherStage final : public TeacherStage {
  public:
    PrefetchingTeacherStage(asio::any_io_executor executor, asio::any_io_executor plan_executor, TeacherSource* source,
                            std::shared_ptr<BatchSource> batches, TeacherStageOptions options, TraceWriter* trace)
        : executor_(std::move(executor)),
          plan_executor_(std::move(plan_executor)),
          source_(source),
          batches_(std::move(batches)),
          options_(std::move(options)),
          trace_(trace),
          scheduler_(options_.scheduler),
          changed_(executor_),
          delivered_signal_(executor_) {}

    asio::awaitable<void> run() override {
        clock_.enter(StageClock::State::wait_input);
        for (const std::size_t endpoint : options_.absent_endpoints) {
            scheduler_.on_endpoint_absent(static_cast<std::uint32_t>(endpoint), steady_now());
        }
        while (!stopped_ && !failure_ && !scheduler_.done()) {
            const Instant now = steady_now();
            for (const SchedulerAction& action : scheduler_.poll(now)) {
                perform(action);
            }
            note_state();
            if (stopped_ || failure_ || scheduler_.done()) {
                break;
            }
            std::optional<std::chrono::steady_clock::time_point> deadline;
            if (const std::optional<Instant> wakeup = scheduler_.next_wakeup(now)) {
                deadline = to_steady(*wakeup);
            }
            co_await changed_.wait(deadline);
        }
        for (auto& [id, request] : active_) {
            request->cancel();
        }
        while (!active_.empty()) {
            co_await changed_.wait();
        }
        clock_.enter(StageClock::State::idle);
        ended_ = true;
        delivered_signal_.notify();
    }

    asio::awaitable<std::optional<MicroBatch>> next() override {
        while (delivered_.empty() && !ended_ && !stopped_ && !failure_ && next_out_ < options_.scheduler.end) {
            co_await delivered_signal_.wait();
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
        changed_.notify();
        delivered_signal_.notify();
    }

    const std::optional<Error>& failure() const override { return failure_; }

    void on_wanted() override { scheduler_.on_wanted(steady_now()); }
    void on_taken(std::uint64_t n) override { scheduler_.on_taken(n, steady_now()); }
    void on_trained(std::uint64_t n) override { scheduler_.on_trained(n, steady_now()); }
    void on_released(std::uint64_t n) override {
        scheduler_.on_released(n, steady_now());
        planned_.erase(n);
        changed_.notify();
    }
    void set_ceiling(std::uint32_t ceiling) override {
        scheduler_.set_ceiling(ceiling);
        changed_.notify();
    }

    FetchCounters counters() const override {
        const SchedulerCounters& seen = scheduler_.counters();
        FetchCounters counters;
        counters.requests = seen.requests;
        counters.completed = seen.completed;
        counters.retries = seen.retries;
        counters.hedges = seen.hedges;
        counters.hedge_wins = seen.hedge_wins;
        for (const auto& [kind, count] : seen.failures) {
            counters.failures[to_string(kind)] = count;
        }
        counters.breaker_openings = seen.breaker_openings;
        counters.bytes_received = bytes_received_;
        counters.concurrency = scheduler_.limit();
        counters.in_flight = scheduler_.in_flight();
        counters.buffered = scheduler_.buffered();
        counters.latency_p50_seconds = to_seconds(scheduler_.latencies().percentile(0.5));
        counters.latency_p95_seconds = to_seconds(scheduler_.latencies().percentile(0.95));
        return counters;
    }

    StageTimes plan_times() const override { return {"plan", to_seconds(plan_busy_), 0, 0}; }
    StageTimes times() const override { return clock_.times(); }

  private:
    struct Active {
        asio::cancellation_signal signal;
        bool cancelled = false;

        void cancel() {
            cancelled = true;
            signal.emit(asio::cancellation_type::terminal);
        }
    };

    void note_state() {
        if (scheduler_.in_flight() > 0) {
            clock_.enter(StageClock::State::busy);
        } else if (scheduler_.buffered() > 0) {
            clock_.enter(StageClock::State::wait_output);
        } else {
            clock_.enter(StageClock::State::wait_input);
        }
    }

    void perform(const SchedulerAction& action) {
        if (const auto* issue = std::get_if<IssueAction>(&action)) {
            start(*issue);
        } else if (const auto* cancel = std::get_if<CancelAction>(&action)) {
            const auto found = active_.find(cancel->request);
            if (found != active_.end()) {
                found->second->cancel();
            }
        } else if (const auto* deliver = std::get_if<DeliverAction>(&action)) {
            const auto answer = answers_.find(deliver->micro_batch);
            const PlannedBatch& planned = planned_.at(deliver->micro_batch);
            delivered_.push_back(MicroBatch{planned.tokens, std::move(answer->second), planned.step_target_tokens});
            answers_.erase(answer);
            delivered_signal_.notify();
        } else if (const auto* give_up = std::get_if<GiveUpAction>(&action)) {
            failure_ =
                teacher_error("micro-batch " + std::to_string(give_up->micro_batch) + ": " + last_message_ + " (" +
                              to_string(give_up->kind) + ", " + std::to_string(give_up->attempts) + " attempts)");
            delivered_signal_.notify();
        }
    }

    void start(const IssueAction& issue) {
        auto active = std::make_shared<Active>();
        active_.emplace(issue.request, active);
        auto finished = [this, active, id = issue.request](const std::exception_ptr& thrown) {
            active_.erase(id);
            // A coroutine that was cancelled may end by operation_aborted.
            if (thrown && !active->cancelled) {
                fail(thrown);
            }
            changed_.notify();
        };
        asio::co_spawn(executor_, fetch(issue),
                       asio::bind_cancellation_slot(active->signal.slot(), std::move(finished)));
    }

    void fail(const std::exception_ptr& thrown) {
        try {
            std::rethrow_exception(thrown);
        } catch (const std::exception& error) {
            failure_ = Error{ErrorKind::internal, std::string("teacher stage: ") + error.what()};
        } catch (...) {
            failure_ = Error{ErrorKind::internal, "teacher stage: unknown exception"};
        }
        delivered_signal_.notify();
    }

    asio::awaitable<void> fetch(IssueAction issue) {
        const std::uint64_t n = issue.micro_batch;
        if (!planned_.contains(n)) {
            auto make = [batches = batches_, n] {
                const Instant began = steady_now();
                PlannedBatch planned = batches->batch(n);
                return std::pair(std::move(planned), steady_now() - began);
            };
            auto planning = run_on(plan_executor_, std::move(make));
            auto made = co_await std::move(planning);
            plan_busy_ += made.second;
            planned_.emplace(n, std::move(made.first));
        }
        const Instant began = steady_now();
        if (source_ == nullptr) {
            scheduler_.on_completed(issue.request, 0, began);
            answers_.emplace(n, std::nullopt);
            co_return;
        }
        const std::shared_ptr<const TokenBatch> tokens = planned_.at(n).tokens;
        auto fetching = source_->fetch(issue.endpoint, tokens, options_.deadline);
        FetchResult<TeacherTargets> answer = co_await std::move(fetching);
        const Instant now = steady_now();
        if (trace_ != nullptr) {
            trace_->overlapping_span("teacher", name_of(issue, answer), began, now, n);
        }
        if (answer) {
            const std::uint64_t bytes = answer->held_bytes;
            const std::uint64_t before = scheduler_.counters().completed;
            scheduler_.on_completed(issue.request, bytes, now);
            if (scheduler_.counters().completed == before) {
                co_return;  // cancelled meanwhile: another answer won
            }
            bytes_received_ += bytes;
            answers_.emplace(n, std::move(*answer));
        } else {
            const FetchError& error = answer.error();
            if (error.kind != FailureKind::cancelled) {
                last_message_ = error.message;
            }
            scheduler_.on_failed(issue.request, error.kind, error.retry_after, now);
        }
    }

    static const char* name_of(const IssueAction& issue, const FetchResult<TeacherTargets>& answer) {
        if (!answer) {
            return to_string(answer.error().kind);
        }
        if (issue.hedge) {
            return "hedge";
        }
        return issue.attempt > 0 ? "retry" : "request";
    }

    asio::any_io_executor executor_;
    asio::any_io_executor plan_executor_;
    TeacherSource* source_;
    std::shared_ptr<BatchSource> batches_;
    TeacherStageOptions options_;
    TraceWriter* trace_;
    PrefetchScheduler scheduler_;
    Signal changed_;
    Signal delivered_signal_;
    StageClock clock_{"teacher"};
    Nanos plan_busy_{0};
    std::unordered_map<RequestId, std::shared_ptr<Active>> active_;
    std::map<std::uint64_t, PlannedBatch> planned_;                   // issued and not released
    std::map<std::uint64_t, std::optional<TeacherTargets>> answers_;  // answered and not delivered
    std::deque<MicroBatch> delivered_;                                // bounded by the scheduler's window
    std::uint64_t next_out_ = options_.scheduler.first;
    std::uint64_t bytes_received_ = 0;
    std::string last_message_;
    std::optional<Error> failure_;
    bool stopped_ = false;
    bool ended_ = false;
};

}  // namespace

std::unique_ptr<TeacherStage> make_teacher_stage(asio::any_io_executor executor, asio::any_io_executor plan_executor,
                                                 TeacherSource* source, std::shared_ptr<BatchSource> batches,
                                                 TeacherStageOptions options, TraceWriter* trace) {
    return std::make_unique<PrefetchingTeacherStage>(std::move(executor), std::move(plan_executor), source,
                                                     std::move(batches), std::move(options), trace);
}

}  // namespace distilld
