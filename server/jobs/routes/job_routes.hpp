#pragma once

#include <memory>
#include <vector>

#include "server/http/http_server.hpp"
#include "server/jobs/job_manager.hpp"
#include "server/jobs/metrics/job_metrics.hpp"
#include "server/jobs/routes/job_estimator.hpp"
#include "server/jobs/store/job_logs.hpp"

namespace distilld {

/// The REST API: /v1/jobs and below, /v1/nodes, /healthz, /readyz, /version, /metrics, /openapi.yaml, and the page at
/// /. The manager must outlive the server that serves the routes; `estimates` answers dry runs. `admit` judges accepted
/// jobs, as in the manager: artifacts are read only from outputs that it allows at that time. Empty: from any.
std::vector<http::Route> make_job_routes(JobManager& manager, std::shared_ptr<JobMetrics> metrics,
                                         std::shared_ptr<JobLogs> logs, Estimates estimates, SpecPolicy policy = {});

}  // namespace distilld
