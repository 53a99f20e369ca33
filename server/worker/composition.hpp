#pragma once

#include <boost/asio/awaitable.hpp>
#include <string>

#include "base/error.hpp"
#include "pipeline/core/worker_events.hpp"
#include "pipeline/graph/training_graph.hpp"
#include "server/worker/orders.hpp"
#include "server/worker/preparation.hpp"

namespace distilld {

/// Reports the start of the run, makes its stage graph, trains, and exports the student. Returns the run's last event:
/// finished or, when `control` was cancelled, cancelled. `trace_file`: Chrome trace to write; empty = none. `run` and
/// `control` must outlive it. Executor of `executors.io`.
boost::asio::awaitable<Result<WorkerEvent>> train_and_export(PreparedRun& run, GraphExecutors executors,
                                                             RunControl& control, EmitEvent emit,
                                                             std::string trace_file);

}  // namespace distilld
