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

struct GenerateWish {
    JobSpec spec;
    JobAttempt attempt;         ///< of the service; a later one replaces this run
    models::LocalModels local;  ///< for a spec that names a model
    std::string trace_file{};   ///< Chrome trace to write; empty = none
    bool waits_for_all = true;  ///< as GenerateOptions
};

/// A generate job: reads the dataset, asks the spec's teacher for every row that the store lacks, and stores the
/// answers. Continues an existing store of the same data; a complete store needs no teacher. Returns the run's last
/// event: finished (its output is the store) or, when `control` was cancelled, cancelled. `control` must outlive it.
/// Executor of `executors.io`.
boost::asio::awaitable<Result<WorkerEvent>> generate_answers(GenerateWish wish, GraphExecutors executors,
                                                             RunControl& control, EmitEvent emit);

}  // namespace distilld
