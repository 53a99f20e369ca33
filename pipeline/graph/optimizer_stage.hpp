#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <vector>

#include "pipeline/core/spec_sections.hpp"
#include "pipeline/graph/stage_clock.hpp"
#include "pipeline/graph/student.hpp"
#include "pipeline/graph/trace_writer.hpp"

namespace distilld {

/// The result of closing a step.
struct FinishedStep {
    StepSums sums;                    ///< of all ranks
    std::vector<RankCounters> ranks;  ///< StepOfAll::ranks
    StepStats stats;
    double learning_rate = 0;
    Instant at;
};

/// The optimizer stage: closes steps, and applies pending updates while there is nothing to train on. It has no loop of
/// its own: the student stage calls it between its micro-batches. All calls on the graph's executor; the work runs on
/// `compute`. `trace` may be null.
class OptimizerStage {
  public:
    OptimizerStage(boost::asio::any_io_executor compute, Student& student, const TrainingSpec& training,
                   std::uint64_t total_steps, TraceWriter* trace, StageClock::Now now = steady_now);

    /// Closes `step` (0-based), of which `sums` are this rank's. `figures` go to the other ranks.
    boost::asio::awaitable<FinishedStep> finish_step(std::uint64_t step, StepSums sums, RankCounters figures);

    [[nodiscard]] bool updates_pending() const noexcept { return updates_pending_; }
    /// Applies the next pending update. The trace shows `steps_done`.
    boost::asio::awaitable<void> apply_one_update(std::uint64_t steps_done);
    /// Applies all pending updates, before something that would have to apply them anyway.
    boost::asio::awaitable<void> apply_updates(std::uint64_t steps_done);
    /// Training has applied updates on its way.
    void on_updates_took(Nanos spent) { clock_.add_busy(spent); }
    /// Another call to the student (training, evaluation, a snapshot) has applied all pending updates.
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
