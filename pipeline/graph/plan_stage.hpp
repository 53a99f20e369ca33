#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "pipeline/graph/batch_source.hpp"
#include "pipeline/graph/stage_clock.hpp"
#include "pipeline/graph/trace_writer.hpp"

namespace distilld {

/// Micro-batches as the teacher stage asks for them. All calls on the graph's executor.
class MicroBatchPlan {
  public:
    virtual ~MicroBatchPlan() = default;
    /// Micro-batch `number`, made now unless it is kept.
    virtual boost::asio::awaitable<PlannedBatch> batch(std::uint64_t number) = 0;
    /// `number` must be kept.
    [[nodiscard]] virtual PlannedBatch kept(std::uint64_t number) const = 0;
    virtual void release(std::uint64_t number) = 0;
};

/// The stage plan: makes the micro-batches that the teacher stage asks for, and keeps each until it is released, so
/// that a retry or a hedge asks about the very same tokens. Has no loop of its own. All calls on the graph's executor;
/// the batches are made on `planning` (one thread). `trace` may be null.
class PlanStage final : public MicroBatchPlan {
  public:
    PlanStage(boost::asio::any_io_executor planning, std::shared_ptr<BatchSource> batches, TraceWriter* trace);

    boost::asio::awaitable<PlannedBatch> batch(std::uint64_t number) override;
    [[nodiscard]] PlannedBatch kept(std::uint64_t number) const override { return kept_.at(number); }
    [[nodiscard]] bool keeps(std::uint64_t number) const { return kept_.contains(number); }
    void release(std::uint64_t number) override { kept_.erase(number); }
    /// BatchPlan::append().
    boost::asio::awaitable<std::uint64_t> append(std::vector<std::uint64_t> rows);

    [[nodiscard]] StageTimes times() const { return clock_.times(); }

  private:
    boost::asio::any_io_executor planning_;
    std::shared_ptr<BatchSource> batches_;
    TraceWriter* trace_;
    StageClock clock_{Stage::plan};
    std::map<std::uint64_t, PlannedBatch> kept_;  // bounded by the scheduler's window
};

}  // namespace distilld
