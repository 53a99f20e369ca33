#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/error.hpp"
#include "pipeline/core/worker_events.hpp"
#include "pipeline/data/dataset.hpp"
#include "pipeline/graph/graph_options.hpp"
#include "pipeline/graph/running_graph.hpp"
#include "pipeline/graph/trace_writer.hpp"
#include "pipeline/store/store_writer.hpp"
#include "pipeline/teacher/teacher_source.hpp"

namespace distilld {

struct GenerateOptions {
    TeacherStageOptions teacher;   ///< scheduler.first and .end are set by the graph
    std::uint32_t batch_rows = 8;  ///< rows per request
    bool of_samples = false;       ///< as ProgressEvent::of_samples
    /// Of a store that others write too: false ends the run when no shard is left to claim, while others write theirs.
    bool waits_for_all = true;
    /// Minimum time between two progress events, except for the first sealed shard and the last event.
    std::chrono::nanoseconds progress_interval = std::chrono::milliseconds(200);
    /// Maximum time between two looks at a store that others write too; each look also shows them that we are alive.
    std::chrono::nanoseconds heartbeat = std::chrono::seconds(5);
    /// The same, while all rows that are left belong to others.
    std::chrono::nanoseconds poll = std::chrono::milliseconds(500);
    std::function<Instant()> now = steady_now;
};

struct GenerateOutcome {
    bool cancelled = false;  ///< rows are left
    ProgressEvent last;      ///< steps are rows of the dataset
};

/// The stage graph of a generate job:
///
/// plan → teacher → decode → store
///
/// Rows that the store needs are requested in the order of the dataset, several requests at once over all endpoints. If
/// an endpoint dies, the others take its requests. Answers are encoded and written on `disk`, where a full disk is
/// waited out. Each row is added once; a row in the store is not asked for again after the run ends or dies. If others
/// write the store too, a shard is claimed once the requests left are no more than may be in flight, and the run ends
/// when all shards are sealed, by anyone, or as GenerateOptions::waits_for_all says.
class GenerateGraph : public RunningGraph {
  public:
    /// Generates to the end, to cancel(), or to the first failure. Run it once. When it returns or throws, its requests
    /// and writes have ended.
    virtual boost::asio::awaitable<Result<GenerateOutcome>> run() = 0;
};

/// References and pointers must outlive the graph. `trace` may be null. `on_event` may be empty.
std::unique_ptr<GenerateGraph> make_generate_graph(GraphExecutors executors, TeacherSource& source,
                                                   std::shared_ptr<const Dataset> dataset, StoreWriter& writer,
                                                   GenerateOptions options,
                                                   std::function<void(const WorkerEvent&)> on_event,
                                                   TraceWriter* trace);

}  // namespace distilld
