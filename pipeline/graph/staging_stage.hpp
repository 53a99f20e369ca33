#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <memory>

#include "pipeline/async/bounded_channel.hpp"
#include "pipeline/graph/graph_options.hpp"
#include "pipeline/graph/stage_clock.hpp"
#include "pipeline/graph/student.hpp"
#include "pipeline/graph/teacher/teacher_stage.hpp"
#include "pipeline/graph/trace_writer.hpp"

namespace distilld {

/// A micro-batch as tensors, on its way to the student.
struct StagedMicroBatch {
    std::uint64_t number = 0;
    std::uint64_t positions = 0;  ///< input positions, without padding
    std::uint64_t padding = 0;    ///< other positions that the student computes
    std::unique_ptr<StagedBatch> batch;
};

/// The staging stage: makes the tensors of micro-batch N+1 while N trains. All calls on the graph's executor; tensors
/// are made on the staging executor. `trace` may be null.
class StagingStage {
  public:
    StagingStage(const GraphExecutors& executors, Student& student, TeacherStage& teacher, TraceWriter* trace);

    /// Runs until the teacher stage is at its end or the output is closed. Always closes the output.
    boost::asio::awaitable<void> run();

    /// Staged micro-batches in order, at most one ahead of each replica of the student.
    [[nodiscard]] BoundedChannel<StagedMicroBatch>& output() noexcept { return output_; }
    [[nodiscard]] const BoundedChannel<StagedMicroBatch>& output() const noexcept { return output_; }
    [[nodiscard]] StageTimes times() const { return clock_.times(); }
    /// The share of padding among all positions staged for the student; 0 without any.
    [[nodiscard]] double padding_share() const noexcept {
        return staged_ == 0 ? 0 : static_cast<double>(padding_) / static_cast<double>(staged_);
    }

  private:
    boost::asio::awaitable<void> stage_all();
    boost::asio::awaitable<StagedMicroBatch> stage(MicroBatch batch);

    boost::asio::any_io_executor staging_;
    Student& student_;
    TeacherStage& teacher_;
    TraceWriter* trace_;
    BoundedChannel<StagedMicroBatch> output_;
    StageClock clock_{Stage::staging};
    std::uint64_t staged_ = 0;  ///< positions, including padding
    std::uint64_t padding_ = 0;
};

}  // namespace distilld
