#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "pipeline/async/condition.hpp"
#include "pipeline/core/micro_batch.hpp"
#include "pipeline/graph/stage_clock.hpp"
#include "pipeline/graph/trace_writer.hpp"
#include "pipeline/teacher/teacher_source.hpp"

namespace distilld {

/// An answer to a micro-batch: the one, or the one of one of several teachers. The earliest micro-batch comes first.
struct AnswerKey {
    std::uint64_t number = 0;
    std::uint32_t part = 0;

    constexpr AnswerKey(std::uint64_t of_number, std::uint32_t of_part = 0)  // NOLINT(google-explicit-constructor)
        : number(of_number), part(of_part) {}
    friend auto operator<=>(const AnswerKey&, const AnswerKey&) = default;
};

/// The stage decode: makes targets of the bytes of answers, and keeps them until they are handed on in order. Has no
/// loop of its own: the teacher stage calls it when a request has brought its bytes. All calls on the graph's executor;
/// the work is done on `decode`, for `max_at_once` answers at a time (the threads it has), the earliest micro-batch
/// first. `trace` may be null.
class DecodeStage {
  public:
    DecodeStage(boost::asio::any_io_executor io, boost::asio::any_io_executor decode, std::uint32_t max_at_once,
                TraceWriter* trace);

    /// The bytes are let go of when this ends. One that is cancelled (operation_aborted is thrown) while it waits for
    /// its turn is not decoded.
    boost::asio::awaitable<FetchResult<TeacherTargets>> decode(AnswerKey key, EncodedAnswer answer);

    /// `targets` is empty in plain training, and where there was nothing to ask.
    void keep(AnswerKey key, std::optional<TeacherTargets> targets);
    /// It must be kept.
    [[nodiscard]] std::optional<TeacherTargets> take(AnswerKey key);

    [[nodiscard]] std::uint32_t max_at_once() const noexcept { return max_at_once_; }
    /// Answers that wait for their turn.
    [[nodiscard]] std::size_t waiting() const noexcept { return waiting_.size(); }
    /// Targets that wait to be handed on.
    [[nodiscard]] std::size_t kept() const noexcept { return kept_.size(); }

    /// busy: an answer is being decoded, or several; wait_output: none, and decoded ones wait to be handed on;
    /// wait_input: none.
    [[nodiscard]] StageTimes times() const { return clock_.times(); }

  private:
    struct Place;

    void note_state();

    boost::asio::any_io_executor decode_;
    std::uint32_t max_at_once_;
    TraceWriter* trace_;
    Condition turn_;
    std::multiset<AnswerKey> waiting_;  // whose bytes have come, bounded by the requests in flight
    std::uint32_t running_ = 0;
    std::map<AnswerKey, std::optional<TeacherTargets>> kept_;  // bounded by the scheduler's window
    StageClock clock_{Stage::decode};
};

}  // namespace distilld
