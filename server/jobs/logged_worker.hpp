#pragma once

#include <functional>
#include <memory>

#include "server/jobs/store/job_logs.hpp"
#include "server/supervisor/launcher.hpp"
#include "server/supervisor/worker_output.hpp"
#include "server/supervisor/worker_process.hpp"

namespace distilld {

/// Makes a worker whose output goes to the sink, which outlives it.
using MakeLoudWorker = std::function<std::unique_ptr<WorkerProcess>(WorkerOutput::LineSink)>;

/// A worker that keeps its stderr, log events and end in the log of its job; stderr also goes to the service's log.
/// `adopted`: an earlier run of the service has started it.
[[nodiscard]] std::unique_ptr<WorkerProcess> make_logged_worker(std::shared_ptr<JobLogs> logs,
                                                                const MakeLoudWorker& make_worker,
                                                                bool adopted = false);

/// Workers on this machine that keep their stderr, log events and end in the log of their job; stderr also goes to the
/// service's log. They run on the cores of their slot, and see only its GPU if it has one.
WorkerFactory make_logged_workers(WorkerProcessOptions options, std::shared_ptr<JobLogs> logs);

}  // namespace distilld
