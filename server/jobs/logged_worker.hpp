#pragma once

#include <memory>

#include "server/jobs/store/job_logs.hpp"
#include "server/supervisor/launcher.hpp"
#include "server/supervisor/worker_process.hpp"

namespace distilld {

/// Workers that keep their stderr, log events and end in the log of their job; stderr also goes to the service's log.
/// They run on the cores of their slot, and see only its GPU if it has one.
WorkerFactory make_logged_workers(WorkerProcessOptions options, std::shared_ptr<JobLogs> logs);

}  // namespace distilld
