#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "pipeline/core/batch_plan.hpp"
#include "pipeline/core/rollout_plan.hpp"
#include "pipeline/core/spec_sections.hpp"
#include "pipeline/core/student_snapshot.hpp"
#include "pipeline/core/worker_events.hpp"
#include "pipeline/data/dataset.hpp"
#include "pipeline/graph/rollout/shown_answers.hpp"
#include "pipeline/graph/steady_time.hpp"
#include "pipeline/graph/student.hpp"
#include "pipeline/graph/teacher/teacher_stage.hpp"
#include "pipeline/teacher/rollout/kept_rollouts.hpp"

/// Input and output of a training graph.
namespace distilld {

/// Where the stages run. `io` is single-threaded and owns the graph's coroutines; `compute` (one thread) owns the
/// student; `staging` (one thread) plans and makes tensors; `disk` (one thread) writes checkpoints; `decode` (of
/// `decode_threads` threads; empty: `staging`) reads answers. `replicas` (one thread each, which splits no operation)
/// train on the micro-batches of a step side by side; empty: `compute` trains on one after the other.
struct GraphExecutors {
    boost::asio::any_io_executor io;
    boost::asio::any_io_executor compute;
    boost::asio::any_io_executor staging;
    boost::asio::any_io_executor disk;
    boost::asio::any_io_executor decode{};
    std::uint32_t decode_threads = 1;
    std::vector<boost::asio::any_io_executor> replicas{};

    [[nodiscard]] const boost::asio::any_io_executor& decoding() const noexcept { return decode ? decode : staging; }
};

/// How a teacher is asked in sequential mode (training.parallel false).
inline void take_one_after_the_other(SchedulerOptions& scheduler) {
    scheduler.limit.adaptive = false;
    scheduler.limit.ceiling = 1;
    scheduler.window.size = 1;
    scheduler.hedge.enabled = false;
}

/// What the student wrote for one step.
struct RolloutStep {
    std::uint64_t step = 0;
    std::vector<KeptAnswers> answers;  ///< by micro-batch
};

/// The student's own answers, in place of the dataset's (RolloutStage).
struct RolloutOptions {
    TeacherSource* source = nullptr;  ///< outlives the graph; answers as RolloutCodec describes
    TeacherStageOptions asking{};
    RolloutPlan plan;
    std::uint32_t max_tokens = 0;
    std::shared_ptr<const Dataset> dataset{};  ///< rows in place of prompts without an answer; null: all have one
    /// Puts the weights after `steps` steps where the servers find them, and returns when they may ask. Disk executor;
    /// again while the error is of kind disk_full. Empty: nobody writes with them.
    std::function<Result<void>(std::uint64_t steps, const StudentSnapshot&)> publish;
    /// Keeps the answers before the student trains on them. Likewise. May be empty.
    std::function<Result<void>(const RolloutStep&)> keep;
    TextOfIds text{};  ///< for the answers that are shown. Staging executor
};

struct GraphOptions {
    TrainingSpec training;
    std::uint64_t first_step = 0;
    std::uint64_t total_steps = 0;
    StepPlan steps{};               ///< set by the graph
    CheckpointSpec checkpoint;      ///< every_steps and every_secs; the run always ends with one
    std::uint64_t tokens_seen = 0;  ///< by the resumed run
    std::string spec_json;          ///< goes into each checkpoint
    ProgressEvent resumed;          ///< of first_step; its figures are reported if no step is left to do
    std::string resumed_from;       ///< folder of the checkpoint; empty = from the start
    /// In the order of the dataset's parts; one teacher if it has no parts. Empty: plain training.
    std::vector<GraphTeacher> teachers{};
    std::optional<RolloutOptions> rollout{};  ///< the batches are prompts then (with_room_for_answers())
    std::uint64_t program_every_steps = 0;    ///< steps between two runs of eval.command; 0: the graph does not run it
    std::string host{};                       ///< name of this machine, for the other ranks; empty: there is one
    /// Only measures the times of student, optimizer, recorder, evaluation and snapshot.
    std::function<Instant()> now = steady_now;
};

/// The surroundings of eval.command. Empty functions: there is none.
struct EvalProgramHooks {
    /// Writes the student where the program will find it. Disk executor.
    std::function<Result<void>(const StudentSnapshot&)> write;
    /// Runs the program on it and reports its figures. On the graph's executor; cancellation ends the program.
    std::function<boost::asio::awaitable<void>(std::uint64_t step)> run;
};

/// What the graph asks of its surroundings.
struct GraphHooks {
    std::function<void(const WorkerEvent&)> on_event;
    /// Commits a checkpoint and returns its folder. Called on the disk executor, and again while the error is of kind
    /// disk_full. Empty: another rank writes them, and the last snapshot.
    std::function<Result<std::string>(std::uint64_t step, const StudentSnapshot&)> commit_checkpoint;
    /// What the process uses now. Called on the graph's executor at each reported step, so it must not block. May be
    /// empty.
    std::function<WorkerUsage()> usage{};
    /// The student's continuations of some prompts. Called at each evaluation, on the compute executor. May be empty.
    std::function<std::vector<SampledText>(Student& student, std::uint64_t step)> sample{};
    EvalProgramHooks program{};
};

struct GraphOutcome {
    bool cancelled = false;  ///< steps are left, or the last checkpoint or evaluation was given up
    std::uint64_t steps_done = 0;
    ProgressEvent last;        ///< of the last step; the stages' times are of the whole run
    double fill_seconds = 0;   ///< wait for the first micro-batch, which nothing can hide
    double padding_share = 0;  ///< of the positions that the student computed
    std::optional<double> eval_loss;
    std::string checkpoint;  ///< the newest: committed by this run or, if there is none, the one it resumed from
    std::shared_ptr<const StudentSnapshot> final_snapshot;
};

}  // namespace distilld
