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
    std::uint32_t batch_rows = 8;  ///< rows of a request
    /// Between two progress events, but for the last.
    std::chrono::nanoseconds progress_interval = std::chrono::milliseconds(200);
    /// Between two looks at a store that others write as well: at least so often they are shown that we live.
    std::chrono::nanoseconds beat = std::chrono::seconds(5);
    /// The same, while nothing is left that others do not have.
    std::chrono::nanoseconds poll = std::chrono::milliseconds(500);
    std::function<Instant()> now = steady_now;
};

struct GenerateOutcome {
    bool cancelled = false;  ///< rows are left
    ProgressEvent last;      ///< steps are rows of the dataset
};

/// The stage graph of a generate job:
///
///   plan → teacher → decode → store
///
/// Rows that the store needs are asked for in the order of the dataset, several requests at once at all endpoints: one
/// that dies leaves its requests to the others. What has come is encoded and written on `disk`, where a full disk is
/// waited out. Each row is added once; what is in the store when the run ends, or dies, is not asked for again. Of a
/// store that others write at the same time, a shard is claimed when no more requests are left than may be in flight at
/// once, and the run ends when all are sealed, whoever has done it.
class GenerateGraph : public RunningGraph {
  public:
    /// Generates to the end, to cancel(), or to the first failure. Run it once. Requests and writes under way have
    /// ended when it returns or throws.
    virtual boost::asio::awaitable<Result<GenerateOutcome>> run() = 0;
};

/// What is passed by reference or pointer must outlive the graph. `trace` may be null. `on_event` may be empty.
std::unique_ptr<GenerateGraph> make_generate_graph(GraphExecutors executors, TeacherSource& source,
                                                   std::shared_ptr<const Dataset> dataset, StoreWriter& writer,
                                                   GenerateOptions options,
                                                   std::function<void(const WorkerEvent&)> on_event,
                                                   TraceWriter* trace);

}  // namespace distilld
