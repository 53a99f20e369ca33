#pragma once

#include <memory>

#include "server/jobs/job_logs.hpp"
#include "server/jobs/job_manager_options.hpp"
#include "server/supervisor/worker_process.hpp"

namespace distilld {

/// Workers whose stderr, log events and end are kept in the log of the job that they are given; stderr goes to the
/// service's log as well. They run on the cores of their slot, and see its GPU alone where it has one.
WorkerFactory make_logged_workers(WorkerProcessOptions options, std::shared_ptr<JobLogs> logs);

}  // namespace distilld
