#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.hpp"
#include "pipeline/async/task_group.hpp"
#include "pipeline/core/checkpoint_schedule.hpp"
#include "pipeline/graph/evaluation.hpp"
#include "pipeline/graph/graph_options.hpp"
#include "pipeline/graph/nonfinite_steps.hpp"
#include "pipeline/graph/optimizer_stage.hpp"
#include "pipeline/graph/program_evaluations.hpp"
#include "pipeline/graph/progress_meter.hpp"
#include "pipeline/graph/space_wait.hpp"
#include "pipeline/graph/stage_clock.hpp"
#include "pipeline/graph/student.hpp"
#include "pipeline/graph/trace_writer.hpp"

namespace distilld {

/// What the recorder asks about the other stages when it reports.
struct GraphTimes {
    std::vector<StageTimes> stages;              ///< of this run, in the order of enum Stage
    double student_waited_seconds = 0;           ///< for input
    double fill_seconds = 0;                     ///< part of it: for the first micro-batch
    std::optional<double> teacher_busy_seconds;  ///< empty without a teacher
    FetchCounters fetch;
    std::optional<RolloutCounters> rollout{};
    std::vector<RequestDurations> request_durations;
    std::vector<StageQueue> queues;  ///< of the stages before the recorder
};

struct RecorderHooks {
    std::function<void(const WorkerEvent&)> on_event;  ///< may be empty
    /// GraphHooks::commit_checkpoint
    std::function<Result<std::string>(std::uint64_t step, const StudentSnapshot&)> commit_checkpoint;
    std::function<GraphTimes()> observe;
    std::function<std::vector<StageTimes>()> stages;                                       ///< part of observe()
    std::function<Nanos()> lost;                                                           ///< TeacherStage::lost()
    std::function<WorkerUsage()> usage;                                                    ///< may be empty
    std::function<std::vector<SampledText>(Student& student, std::uint64_t step)> sample;  ///< GraphHooks::sample
    EvalProgramHooks program;
    std::function<void()> on_failure;  ///< the run cannot go on: see RecorderStage::failure()
};

/// The recorder stage: progress events, evaluation, checkpoints, exports for eval.command. It has no loop of its own:
/// the student stage calls it at step boundaries. What is written is copied at once and written during the next steps.
/// The next copy waits for that write, so memory holds at most one. While the disk is full, training waits at the next
/// step boundary. All calls on the graph's executor. `trace` may be null.
class RecorderStage {
  public:
    RecorderStage(GraphExecutors executors, Student& student, OptimizerStage& optimizer, EvaluationSet eval,
                  const GraphOptions& options, RecorderHooks hooks, TraceWriter* trace);

    /// The run begins now.
    void start();
    /// Step number steps_done() has ended: emits its event, and evaluates if that is due. last_evaluation() does the
    /// one at the end.
    boost::asio::awaitable<void> record(FinishedStep finished);
    /// What this rank tells the others when a step ends, after `tokens` input positions of its own. Empty if there is
    /// one.
    [[nodiscard]] RankCounters rank_figures(std::uint64_t tokens) const;
    /// Copies the student if a checkpoint is due or was requested, or eval.command is due. Not after the last step: see
    /// last_checkpoint().
    boost::asio::awaitable<void> copy_when_due();
    /// At the next step boundary.
    void request_checkpoint() noexcept { checkpoint_requested_ = true; }
    /// Ends the run with a checkpoint: after the last step, or at the last whole step of a run that ends early. A
    /// failed run takes one too, so no training is lost.
    boost::asio::awaitable<void> last_checkpoint();
    /// A run that ends before its last step takes no last checkpoint.
    void forgo_last_checkpoint() noexcept { forgoes_last_ = true; }
    /// After the last checkpoint of a whole run, so that no training is lost with it.
    boost::asio::awaitable<void> last_evaluation();
    /// The run is no longer wanted: an evaluation ends after the current batch, eval.command at once, and a full disk
    /// is not waited for.
    void cancel();
    /// For the requests about held-out rows, like TeacherStage::set_ceiling().
    void set_ceiling(std::uint32_t ceiling) { evaluator_.set_ceiling(ceiling); }
    /// cancel() has cut the last checkpoint or the last evaluation short.
    [[nodiscard]] bool cut_short() const noexcept { return cut_short_; }
    /// Waits for the checkpoint that is being written and for eval.command, as they refer to this stage; rethrows what
    /// the write threw. Takes no checkpoint afterwards.
    boost::asio::awaitable<void> join();

    [[nodiscard]] std::uint64_t steps_done() const noexcept { return outcome_.steps_done; }
    [[nodiscard]] bool whole() const noexcept { return outcome_.steps_done == options_.total_steps; }
    [[nodiscard]] const std::optional<Error>& failure() const noexcept { return failure_; }
    [[nodiscard]] GraphOutcome take_outcome() { return std::move(outcome_); }
    /// Times of the recorder (a checkpoint is being written), evaluation and snapshot (a checkpoint's copy).
    [[nodiscard]] std::vector<StageTimes> times() const {
        return {clock_.times(), evaluation_clock_.times(), snapshot_clock_.times()};
    }

  private:
    void report(const FinishedStep& finished);
    void judge(const FinishedStep& finished);
    void fill(ProgressEvent& event) const;
    void emit(const WorkerEvent& event) const;
    boost::asio::awaitable<bool> evaluate();  // false: cancelled
    boost::asio::awaitable<void> written();   // until no checkpoint is being written
    boost::asio::awaitable<std::shared_ptr<const StudentSnapshot>> snapshot();
    boost::asio::awaitable<void> write(std::shared_ptr<const StudentSnapshot> taken, std::uint64_t step);
    boost::asio::awaitable<void> write_copy(std::shared_ptr<const StudentSnapshot> taken, std::uint64_t step,
                                            bool checkpoint, bool program);

    GraphExecutors executors_;
    Student& student_;
    OptimizerStage& optimizer_;
    GraphOptions options_;
    RecorderHooks hooks_;
    Evaluator evaluator_;
    TraceWriter* trace_;
    ProgramEvaluations programs_;
    TaskGroup writes_;
    SpaceWait space_;
    StageClock clock_;
    StageClock evaluation_clock_;
    StageClock snapshot_clock_;
    Instant start_;
    ProgressMeter meter_;
    CheckpointSchedule schedule_;
    GraphOutcome outcome_;
    std::optional<Error> failure_;
    std::uint64_t tokens_seen_ = 0;
    NonfiniteSteps nonfinite_;
    bool checkpoint_requested_ = false;
    bool forgoes_last_ = false;
    bool cancelled_ = false;
    bool cut_short_ = false;
};

}  // namespace distilld
