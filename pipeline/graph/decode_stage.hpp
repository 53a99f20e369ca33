#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
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
    boost::asio::awaitable<FetchResult<TeacherTargets>> decode(std::uint64_t number, EncodedAnswer answer);

    /// `targets` is empty in plain training.
    void keep(std::uint64_t number, std::optional<TeacherTargets> targets);
    /// `number` must be kept.
    [[nodiscard]] std::optional<TeacherTargets> take(std::uint64_t number);

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
    std::multiset<std::uint64_t> waiting_;  // micro-batches with bytes, bounded by the requests in flight
    std::uint32_t running_ = 0;
    std::map<std::uint64_t, std::optional<TeacherTargets>> kept_;  // bounded by the scheduler's window
    StageClock clock_{Stage::decode};
};

}  // namespace distilld
