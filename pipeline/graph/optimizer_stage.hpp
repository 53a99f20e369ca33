#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstdint>

#include "pipeline/core/job_spec.hpp"
#include "pipeline/graph/stage_clock.hpp"
#include "pipeline/graph/student.hpp"
#include "pipeline/graph/trace_writer.hpp"

namespace distilld {

/// What closing a step came to.
struct FinishedStep {
    StepStats stats;
    double learning_rate = 0;
    Instant at;
};

/// The stage optimizer: closes steps, and applies updates that were left pending while there is nothing to train on.
/// Has no loop of its own: the student stage calls it between its micro-batches. All calls on the graph's executor; the
/// work is done on `compute`. `trace` may be null.
class OptimizerStage {
  public:
    OptimizerStage(boost::asio::any_io_executor compute, Student& student, const TrainingSpec& training,
                   std::uint64_t total_steps, TraceWriter* trace, StageClock::Now now = steady_now);

    /// Closes `step` (0-based).
    boost::asio::awaitable<FinishedStep> finish_step(std::uint64_t step);

    [[nodiscard]] bool updates_pending() const noexcept { return updates_pending_; }
    /// Applies the next one. `steps_done` is shown in the trace.
    boost::asio::awaitable<void> apply_one_update(std::uint64_t steps_done);
    /// All that are pending: before something for which they would have to be applied anyway.
    boost::asio::awaitable<void> apply_updates(std::uint64_t steps_done);
    /// Training has applied updates along the way.
    void on_updates_took(Nanos spent) { clock_.add_busy(spent); }
    /// Another call to the student (training, evaluation, a snapshot) has applied all that were pending.
    void on_updates_applied() noexcept { updates_pending_ = false; }

    [[nodiscard]] StageTimes times() const { return clock_.times(); }

  private:
    boost::asio::any_io_executor compute_;
    Student& student_;
    TrainingSpec training_;
    std::uint64_t total_steps_;
    TraceWriter* trace_;
    StageClock clock_;
    bool updates_pending_ = false;
};

}  // namespace distilld
