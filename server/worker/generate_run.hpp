#pragma once

#include <boost/asio/awaitable.hpp>
#include <string>

#include "api/job_spec.hpp"
#include "base/error.hpp"
#include "base/job_attempt.hpp"
#include "models/serving/local_teacher.hpp"
#include "pipeline/core/worker_events.hpp"
#include "pipeline/graph/graph_options.hpp"
#include "server/worker/emit_event.hpp"
#include "server/worker/orders.hpp"

namespace distilld {

/// A generate job: reads the dataset, asks the spec's teacher for every row that the store lacks, and stores the
/// answers. Continues an existing store of the same data; a complete store needs no teacher. Returns the run's last
/// event: finished (its output is the store) or, when `control` was cancelled, cancelled. `local`: for a spec that
/// names a model. `attempt`: of the service; a later one replaces this run. `trace_file`: Chrome trace to write; empty
/// = none. `control` must outlive it. Executor of `executors.io`.
boost::asio::awaitable<Result<WorkerEvent>> generate_answers(JobSpec spec, JobAttempt attempt,
                                                             models::LocalModels local, GraphExecutors executors,
                                                             RunControl& control, EmitEvent emit,
                                                             std::string trace_file);

}  // namespace distilld
