#pragma once

#include <memory>
#include <vector>

#include "server/http/http_server.hpp"
#include "server/jobs/job_estimator.hpp"
#include "server/jobs/job_logs.hpp"
#include "server/jobs/job_manager.hpp"
#include "server/jobs/job_metrics.hpp"

namespace distilld {

/// The REST API: /v1/jobs and below, /healthz, /readyz, /version, /metrics, /openapi.yaml, and the page at /. The
/// manager must outlive the server that the routes are given to; `estimates` are what dry runs say. `admit`: of a job
/// that was taken, as the manager has it; artifacts are read from outputs that it allows by then. Empty: from any.
std::vector<http::Route> make_job_routes(JobManager& manager, std::shared_ptr<JobMetrics> metrics,
                                         std::shared_ptr<JobLogs> logs, Estimates estimates, Admission admit = {});

}  // namespace distilld
