#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "pipeline/async/condition.hpp"
#include "pipeline/core/micro_batch.hpp"
#include "pipeline/graph/stage_clock.hpp"
#include "pipeline/graph/trace_writer.hpp"
#include "pipeline/teacher/teacher_source.hpp"

namespace distilld {

/// A lane's answer to a micro-batch. Ordered by micro-batch, earliest first.
struct AnswerKey {
    std::uint64_t number = 0;
    std::uint32_t part = 0;

    constexpr AnswerKey(std::uint64_t of_number, std::uint32_t of_part = 0)  // NOLINT(google-explicit-constructor)
        : number(of_number), part(of_part) {}
    friend auto operator<=>(const AnswerKey&, const AnswerKey&) = default;
};

/// The decode stage: turns the bytes of answers into targets, and keeps them until they are handed on in order. It has
/// no loop of its own: the teacher stage calls it when a request has its bytes. All calls on the graph's executor. The
/// work runs on `decode`, up to `max_at_once` answers at a time (its threads), the earliest micro-batch first. `trace`
/// may be null.
class DecodeStage {
  public:
    DecodeStage(boost::asio::any_io_executor io, boost::asio::any_io_executor decode, std::uint32_t max_at_once,
                TraceWriter* trace);

    /// Releases the bytes when it ends. If it is cancelled while it waits for its turn, it decodes nothing and throws
    /// operation_aborted.
    boost::asio::awaitable<FetchResult<TeacherTargets>> decode(AnswerKey key, EncodedAnswer answer);

    /// `targets` is empty in plain training, and if there was nothing to ask.
    void keep(AnswerKey key, std::optional<TeacherTargets> targets);
    /// The answer must be kept.
    [[nodiscard]] std::optional<TeacherTargets> take(AnswerKey key);

    /// The executor that decodes.
    [[nodiscard]] const boost::asio::any_io_executor& executor() const noexcept { return decode_; }
    [[nodiscard]] std::uint32_t max_at_once() const noexcept { return max_at_once_; }
    /// Answers that wait for their turn.
    [[nodiscard]] std::size_t waiting() const noexcept { return waiting_.size(); }
    /// Targets that wait to be handed on.
    [[nodiscard]] std::size_t kept() const noexcept { return kept_.size(); }

    /// busy: at least one answer is being decoded; wait_output: none is, and decoded ones wait to be handed on;
    /// wait_input: otherwise.
    [[nodiscard]] StageTimes times() const { return clock_.times(); }

  private:
    struct Place;

    void note_state();
    /// Wakes the answer whose turn it is, if there is a place; not all, since many may wait after an outage.
    void wake_next();

    boost::asio::any_io_executor decode_;
    std::uint32_t max_at_once_;
    TraceWriter* trace_;
    boost::asio::any_io_executor io_;
    std::multimap<AnswerKey, Condition*> waiting_;  // bytes have arrived; bounded by the requests in flight
    std::uint32_t running_ = 0;
    std::map<AnswerKey, std::optional<TeacherTargets>> kept_;  // bounded by the scheduler's window
    StageClock clock_{Stage::decode};
};

}  // namespace distilld
