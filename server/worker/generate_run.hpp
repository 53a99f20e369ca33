#pragma once

#include <boost/asio/awaitable.hpp>
#include <string>

#include "api/job_spec.hpp"
#include "base/error.hpp"
#include "models/serving/local_teacher.hpp"
#include "pipeline/core/worker_events.hpp"
#include "pipeline/graph/graph_options.hpp"
#include "server/worker/emit_event.hpp"
#include "server/worker/orders.hpp"

namespace distilld {

/// A generate job: reads the dataset, asks the spec's teacher for every row that the store lacks, and stores the
/// answers. Continues an existing store of the same data; a complete store needs no teacher. Returns the run's last
/// event: finished (its output is the store) or, when `control` was cancelled, cancelled. `local`: for a spec that
/// names a model. `trace_file`: Chrome trace to write; empty = none. `control` must outlive it. Executor of
/// `executors.io`.
boost::asio::awaitable<Result<WorkerEvent>> generate_answers(JobSpec spec, models::LocalModels local,
                                                             GraphExecutors executors, RunControl& control,
                                                             EmitEvent emit, std::string trace_file);

}  // namespace distilld
