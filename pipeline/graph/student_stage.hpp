#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "pipeline/async/bounded_channel.hpp"
#include "pipeline/async/task_group.hpp"
#include "pipeline/graph/graph_options.hpp"
#include "pipeline/graph/optimizer_stage.hpp"
#include "pipeline/graph/recorder_stage.hpp"
#include "pipeline/graph/rollout_stage.hpp"
#include "pipeline/graph/stage_clock.hpp"
#include "pipeline/graph/staging_stage.hpp"
#include "pipeline/graph/student.hpp"
#include "pipeline/graph/teacher/teacher_stage.hpp"
#include "pipeline/graph/trace_writer.hpp"

namespace distilld {

/// The student stage: trains on staged micro-batches in order, as many at once as there are replicas, and calls
/// optimizer and recorder at step boundaries, when no training is in progress. All calls on the graph's executor;
/// training runs on the replicas or on `compute`. `trace` and `rollout` may be null.
class StudentStage {
  public:
    StudentStage(const GraphExecutors& executors, Student& student, BoundedChannel<StagedMicroBatch>& input,
                 TeacherStage& teacher, OptimizerStage& optimizer, RecorderStage& recorder, const GraphOptions& options,
                 TraceWriter* trace, RolloutStage* rollout = nullptr);

    /// Trains to the last step, to the end of the input or to cancel(). Call once.
    boost::asio::awaitable<void> run();
    /// Ends run() after the current micro-batches; if that completes a step, after the step.
    void cancel() noexcept { cancelled_ = true; }

    /// The wait for the first micro-batch, which nothing can hide.
    [[nodiscard]] double fill_seconds() const noexcept { return fill_seconds_; }
    /// busy: trains on at least one micro-batch; wait_output: the optimizer or the recorder (evaluation, checkpoint,
    /// events) uses the student.
    [[nodiscard]] StageTimes times() const { return clock_.times(); }

  private:
    boost::asio::awaitable<void> train_all();
    boost::asio::awaitable<std::optional<StepSums>> train_step(std::uint64_t step);
    boost::asio::awaitable<std::optional<StagedMicroBatch>> next();
    /// Waits until at most `tasks` micro-batches train. False: training has failed, and run() throws why.
    boost::asio::awaitable<bool> until_training(std::size_t tasks);
    boost::asio::awaitable<void> train(StagedMicroBatch staged);

    std::vector<boost::asio::any_io_executor> trainers_;
    Student& student_;
    BoundedChannel<StagedMicroBatch>& input_;
    TeacherStage& teacher_;
    OptimizerStage& optimizer_;
    RecorderStage& recorder_;
    GraphOptions options_;
    TraceWriter* trace_;
    RolloutStage* rollout_;
    TaskGroup training_;        // a task for each micro-batch that trains
    StepSums sums_;             // of the current step
    std::uint64_t tokens_ = 0;  // input positions of this rank's steps
    StageClock clock_;
    double fill_seconds_ = 0;
    bool filled_ = false;  // the first micro-batch was taken
    bool cancelled_ = false;
};

}  // namespace distilld
