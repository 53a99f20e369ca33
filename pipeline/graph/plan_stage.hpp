#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "pipeline/async/condition.hpp"
#include "pipeline/graph/batch_source.hpp"
#include "pipeline/graph/stage_clock.hpp"
#include "pipeline/graph/trace_writer.hpp"

namespace distilld {

/// The plan stage: makes the micro-batches that the teacher stage asks for. It keeps each until it is released, so that
/// a retry or a hedge asks about the same tokens. It has no loop of its own. All calls on the graph's executor, `io`;
/// batches are made on `planning` (one thread). `trace` may be null.
/// `batches` may be null if another stage makes all of them: see keep().
class PlanStage {
  public:
    PlanStage(boost::asio::any_io_executor io, boost::asio::any_io_executor planning,
              std::shared_ptr<BatchSource> batches, TraceWriter* trace);

    /// Micro-batch `number`, made now unless it is kept or is being made for another caller.
    boost::asio::awaitable<PlannedBatch> batch(std::uint64_t number);
    /// Keeps a micro-batch that was made elsewhere.
    void keep(PlannedBatch planned) {
        const std::uint64_t number = planned.number;
        kept_.insert_or_assign(number, std::move(planned));
    }
    /// `number` must be kept.
    [[nodiscard]] const PlannedBatch& kept(std::uint64_t number) const { return kept_.at(number); }
    void release(std::uint64_t number) { kept_.erase(number); }
    /// BatchPlan::append().
    boost::asio::awaitable<std::uint64_t> append(std::vector<std::uint64_t> rows);

    [[nodiscard]] StageTimes times() const { return clock_.times(); }

  private:
    boost::asio::any_io_executor planning_;
    std::shared_ptr<BatchSource> batches_;
    TraceWriter* trace_;
    StageClock clock_{Stage::plan};
    Condition made_;
    std::set<std::uint64_t> being_made_;          // bounded by the requests in flight
    std::map<std::uint64_t, PlannedBatch> kept_;  // bounded by the scheduler's window
};

}  // namespace distilld
