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
#include "pipeline/core/job_spec.hpp"
#include "pipeline/core/worker_events.hpp"
#include "pipeline/graph/batch_source.hpp"
#include "pipeline/graph/student.hpp"
#include "pipeline/graph/teacher_stage.hpp"
#include "pipeline/graph/trace_writer.hpp"

namespace distilld {

/// Where the stages run. `io` is single-threaded and owns the graph's coroutines; `compute` (one thread) owns the
/// student; `staging` (one thread) plans, decodes and makes tensors; `disk` (one thread) writes checkpoints.
struct GraphExecutors {
    boost::asio::any_io_executor io;
    boost::asio::any_io_executor compute;
    boost::asio::any_io_executor staging;
    boost::asio::any_io_executor disk;
};

struct GraphOptions {
    TrainingSpec training;
    std::uint64_t first_step = 0;
    std::uint64_t total_steps = 0;
    std::uint64_t checkpoint_every = 0;  ///< steps; 0 = none but the last
    std::uint64_t tokens_seen = 0;       ///< by the run that is resumed
    std::string spec_json;               ///< goes into each checkpoint
    TeacherStageOptions teacher;         ///< scheduler.first and .end are set by the graph
};

/// What the graph asks of its surroundings.
struct GraphHooks {
    std::function<void(const WorkerEvent&)> on_event;
    /// Commits a checkpoint and returns its folder. Called on the disk executor.
    std::function<Result<std::string>(std::uint64_t step, const StudentSnapshot&)> commit_checkpoint;
};

struct GraphOutcome {
    bool cancelled = false;
    std::uint64_t steps_done = 0;
    ProgressEvent last;
    double fill_seconds = 0;  ///< wait for the first micro-batch, which nothing can hide
    std::optional<double> eval_loss;
    std::string checkpoint;  ///< the newest that was committed by this run
    std::shared_ptr<const StudentSnapshot> final_snapshot;
};

/// The stage graph of a training job:
///
///   plan → teacher → staging → student → optimizer → recorder
///
/// Each stage is a coroutine on `io`; work moves to the executor that owns its resource. In sequential mode
/// (training.parallel false) the same graph runs with C = 1, W = 1, nothing staged ahead and the update applied at
/// once.
class TrainingGraph {
  public:
    virtual ~TrainingGraph() = default;
    /// Trains to the end, to cancel(), or to the first failure. Run it once.
    virtual boost::asio::awaitable<Result<GraphOutcome>> run() = 0;
    /// Ends the run after the micro-batch under way, with a checkpoint of the last whole step.
    virtual void cancel() = 0;
    /// A checkpoint at the next step boundary.
    virtual void request_checkpoint() = 0;
    virtual void set_max_concurrent(std::uint32_t limit) = 0;
};

/// `source` null = plain training. `eval` may be empty. `trace` may be null. What is passed by reference or pointer
/// must outlive the graph.
std::unique_ptr<TrainingGraph> make_training_graph(GraphExecutors executors, Student& student, TeacherSource* source,
                                                   std::shared_ptr<BatchSource> batches, std::vector<TokenBatch> eval,
                                                   GraphOptions options, GraphHooks hooks, TraceWriter* trace);

}  // namespace distilld
