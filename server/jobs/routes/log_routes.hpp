#pragma once

#include <memory>
#include <vector>

#include "server/http/http_server.hpp"
#include "server/jobs/job_manager.hpp"
#include "server/jobs/store/job_logs.hpp"

namespace distilld {

/// The log of a job's workers: /v1/jobs/{id}/logs. The manager must outlive the server that serves the routes.
std::vector<http::Route> make_log_routes(JobManager& manager, std::shared_ptr<JobLogs> logs);

}  // namespace distilld
