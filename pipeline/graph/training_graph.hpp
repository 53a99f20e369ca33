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

namespace distilld {

/// The stage graph of a training job:
///
/// plan → teacher → decode → staging → student → optimizer → recorder
///
/// Three stages are coroutines that run concurrently on `io`: teacher (many requests at once, handed on in order),
/// staging (one micro-batch ahead) and student. The others have no loop of their own. The teacher calls plan, and
/// decode for each answer; an unreadable answer is requested again. The student calls optimizer and recorder at step
/// boundaries; checkpoints are written during the next steps. Work runs on the executor that owns its resource. In
/// sequential mode (training.parallel false) the same graph runs with C = 1, W = 1 and the update applied at once.
class TrainingGraph : public RunningGraph {
  public:
    /// Trains to the end, to cancel(), or to the first failure. Run it once. When it returns or throws (what a stage
    /// threw; operation_aborted when cancelled), requests and checkpoint writes have ended.
    virtual boost::asio::awaitable<Result<GraphOutcome>> run() = 0;
};

/// `eval` may be empty. `trace` may be null. References and pointers must outlive the graph.
std::unique_ptr<TrainingGraph> make_training_graph(GraphExecutors executors, Student& student,
                                                   std::shared_ptr<BatchSource> batches, EvaluationSet eval,
                                                   GraphOptions options, GraphHooks hooks, TraceWriter* trace);

}  // namespace distilld
