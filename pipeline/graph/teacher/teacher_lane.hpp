#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "pipeline/async/condition.hpp"
#include "pipeline/async/task_group.hpp"
#include "pipeline/core/scheduling/endpoint_tally.hpp"
#include "pipeline/graph/teacher/request_outcome.hpp"
#include "pipeline/graph/teacher/teacher_stage.hpp"

namespace distilld {

/// One teacher of the teacher stage: carries out what its prefetch scheduler decides, for its rows of the
/// micro-batches. All calls on the executor it was made with (single-threaded). TeacherStage describes what both have.
class TeacherLane {
  public:
    /// A lane's answer for a micro-batch: empty in plain training, and if there was nothing to ask.
    struct Answer {
        std::optional<TeacherTargets> targets;
    };

    /// `part`: the lane's number, from 0. `on_state` receives the states that TeacherStage::times() adds up.
    TeacherLane(boost::asio::any_io_executor executor, PlanStage& plan, DecodeStage& decode, GraphTeacher teacher,
                std::uint32_t part, std::function<void(StageClock::State)> on_state, TraceWriter* trace);

    boost::asio::awaitable<void> run();
    /// The answer for the next micro-batch in order.
    boost::asio::awaitable<std::optional<Answer>> next();
    void stop();
    [[nodiscard]] const std::optional<Error>& failure() const { return failure_; }

    void on_wanted();
    void on_taken(std::uint64_t n) { scheduler_.on_taken(n, steady_now()); }
    void on_trained(std::uint64_t n) { scheduler_.on_trained(n, steady_now()); }
    void on_released(std::uint64_t n);
    void set_ceiling(std::uint32_t ceiling);
    void set_held(bool held);
    boost::asio::awaitable<void> requests_ended();
    void set_end(std::uint64_t end, bool last);
    [[nodiscard]] bool short_of_batches() const { return scheduler_.short_of_batches(); }

    [[nodiscard]] bool asks() const noexcept { return source_ != nullptr; }
    [[nodiscard]] FetchCounters counters() const;
    [[nodiscard]] Nanos waited() const { return scheduler_.waited(steady_now()); }
    [[nodiscard]] Nanos lost() const { return watch_.lost(); }
    [[nodiscard]] std::vector<RequestDurations> durations() const;
    /// Answers that next() has not returned yet.
    [[nodiscard]] std::size_t delivered() const noexcept { return delivered_.size(); }

  private:
    [[nodiscard]] TeacherNews news() const;
    [[nodiscard]] bool over() const { return stopped_ || failure_ || scheduler_.done(); }
    void wake();
    boost::asio::awaitable<void> issue_all();
    void tell_limits();
    Condition::TimePoint next_deadline(Instant now);
    [[nodiscard]] AnswerKey key_of(std::uint64_t micro_batch) const { return {micro_batch, part_}; }
    void note_state();
    void perform(const IssueAction& issue);
    void perform(const CancelAction& cancel);
    void perform(const DeliverAction& deliver);
    void perform(const GiveUpAction& give_up);
    void fail(Error error);
    void fail(const std::exception_ptr& thrown);
    boost::asio::awaitable<void> request(IssueAction issue);
    boost::asio::awaitable<std::shared_ptr<const TokenBatch>> rows_for(IssueAction issue);
    boost::asio::awaitable<void> carry_out(IssueAction issue);
    boost::asio::awaitable<FetchResult<TeacherTargets>> decoded(IssueAction issue, EncodedAnswer answer, Nanos took);
    void report(const IssueAction& issue, const FetchError& error, Instant now);
    boost::asio::awaitable<FetchResult<EncodedAnswer>> ask(std::size_t endpoint,
                                                           std::shared_ptr<const TokenBatch> tokens);
    void take(const IssueAction& issue, TeacherTargets answer, Instant now);

    PlanStage& plan_;
    DecodeStage& decode_;
    TeacherSource* source_;
    TeacherStageOptions options_;
    std::uint32_t part_;
    std::function<void(StageClock::State)> on_state_;
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
    std::deque<Answer> delivered_;  // bounded by the scheduler's window
    std::uint64_t next_out_ = options_.scheduler.first;
    std::uint64_t not_sent_ = 0;      // requests about micro-batches without rows of the teacher
    std::uint64_t not_sent_yet_ = 0;  // those with a micro-batch that is being planned
    std::uint32_t on_the_wire_ = 0;   // requests without bytes yet
    std::uint64_t end_ = options_.scheduler.end;
    bool growing_ = options_.scheduler.growing;
    std::optional<ConcurrencyLimits> told_limits_;
    std::optional<Error> failure_;
    Instant heard_{};  // when the teacher was last heard from, or first asked since
    bool news_ = false;
    bool stopped_ = false;
    bool ended_ = false;
};

}  // namespace distilld
