#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "pipeline/async/task_group.hpp"
#include "pipeline/graph/decode_stage.hpp"
#include "pipeline/graph/graph_options.hpp"
#include "pipeline/graph/optimizer_stage.hpp"
#include "pipeline/graph/plan_stage.hpp"
#include "pipeline/graph/space_wait.hpp"
#include "pipeline/graph/student.hpp"
#include "pipeline/graph/teacher/teacher_stage.hpp"
#include "pipeline/graph/trace_writer.hpp"

namespace distilld {

/// The rollout stage: has the student's answers to the prompts written, by its weights of exactly `staleness` steps
/// before, and hands them to `plan` as the micro-batches that the teacher grades. The loss of a step is divided by its
/// tokens, so a step is handed on when all its answers are there. It asks through a teacher stage of its own, with its
/// scheduler, window, retries and breakers. All calls on the graph's executor. `trace` may be null.
class RolloutStage {
  public:
    /// `batches` makes the prompts (with_room_for_answers()). Everything else must outlive this.
    RolloutStage(const GraphExecutors& executors, Student& student, OptimizerStage& optimizer,
                 std::shared_ptr<BatchSource> batches, PlanStage& plan, TeacherStage& teacher,
                 const GraphOptions& options, const GraphHooks& hooks, TraceWriter* trace);

    /// Publishes the first weights; then collects answers to the last step, to stop(), or to a failure. Call once.
    boost::asio::awaitable<void> run();
    /// After run() and the student's last step: waits for the weights to be written, unless the run has failed.
    boost::asio::awaitable<void> join();
    /// The student has done `steps` steps: its weights are copied, and published while it trains on. Waits only for the
    /// weights before to be written.
    boost::asio::awaitable<void> on_step_done(std::uint64_t steps);
    /// Ends run(); requests under way are cancelled.
    void stop();
    /// Valid once run() has ended.
    [[nodiscard]] std::optional<Error> failure() const { return failure_ ? failure_ : writers_.failure(); }

    [[nodiscard]] RolloutCounters counters() const { return counters_; }
    /// Of planning the prompts.
    [[nodiscard]] StageTimes plan_times() const { return prompts_.times(); }
    /// As TeacherStage::times().
    [[nodiscard]] StageTimes times() const;

  private:
    boost::asio::awaitable<void> collect();
    boost::asio::awaitable<bool> collect_step(std::uint64_t step);
    boost::asio::awaitable<void> written();
    boost::asio::awaitable<void> publish(std::uint64_t steps, std::shared_ptr<const StudentSnapshot> snapshot);
    void let_write(std::uint64_t version);
    void count(const RolloutStep& step);
    void fail(Error error);
    void fail(const std::exception_ptr& thrown);

    GraphExecutors executors_;
    Student& student_;
    OptimizerStage& optimizer_;
    PlanStage& plan_;
    TeacherStage& teacher_;
    RolloutOptions options_;
    std::function<void(const WorkerEvent&)> on_event_;
    StepPlan steps_;
    std::uint64_t first_step_;
    std::uint64_t total_steps_;
    PlanStage prompts_;
    DecodeStage decode_;
    TeacherStage writers_;
    SpaceWait writing_;  // of weights
    SpaceWait keeping_;  // of answers
    TaskGroup writes_;   // of weights, one at a time
    RolloutCounters counters_;
    double surprise_ = 0;  // sum of −log p
    std::optional<Error> failure_;
    bool stopped_ = false;
};

}  // namespace distilld
