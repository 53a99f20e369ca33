#pragma once

#include <memory>
#include <vector>

#include "server/http/http_server.hpp"
#include "server/jobs/job_logs.hpp"
#include "server/jobs/job_manager.hpp"

namespace distilld {

/// What a job's workers said: /v1/jobs/{id}/logs. The manager must outlive the server that the routes are given to.
std::vector<http::Route> make_log_routes(JobManager& manager, std::shared_ptr<JobLogs> logs);

}  // namespace distilld
