#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <memory>

#include "base/error.hpp"
#include "pipeline/graph/batch_source.hpp"
#include "pipeline/graph/evaluation.hpp"
#include "pipeline/graph/graph_options.hpp"
#include "pipeline/graph/running_graph.hpp"
#include "pipeline/graph/student.hpp"
#include "pipeline/graph/trace_writer.hpp"
#include "pipeline/teacher/teacher_source.hpp"

namespace distilld {

/// The stage graph of a training job:
///
///   plan → teacher → decode → staging → student → optimizer → recorder
///
/// Three stages are coroutines that run at the same time on `io`: teacher (many requests at once, handed on in order),
/// staging (one micro-batch ahead) and student. The others have no loop of their own: teacher asks plan, and decode for
/// each answer that has come (one that cannot be read is asked for again); student calls optimizer and recorder at step
/// borders, and checkpoints are written behind the next step. All work moves to the executor that owns its resource. In
/// sequential mode (training.parallel false) the same graph runs with C = 1, W = 1 and the update applied at once.
class TrainingGraph : public RunningGraph {
  public:
    /// Trains to the end, to cancel(), or to the first failure. Run it once. Whether it returns or throws (what a stage
    /// threw; operation_aborted when its coroutine is cancelled), requests and checkpoints under way have ended.
    virtual boost::asio::awaitable<Result<GraphOutcome>> run() = 0;
};

/// `source` null = plain training, or several teachers (GraphOptions::several), for which `batches` is of a mixed
/// dataset with as many parts. `eval` may be empty. `trace` may be null. What is passed by reference or pointer
/// must outlive the graph.
std::unique_ptr<TrainingGraph> make_training_graph(GraphExecutors executors, Student& student, TeacherSource* source,
                                                   std::shared_ptr<BatchSource> batches, EvaluationSet eval,
                                                   GraphOptions options, GraphHooks hooks, TraceWriter* trace);

}  // namespace distilld
