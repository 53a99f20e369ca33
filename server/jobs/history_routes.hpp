#pragma once

#include <vector>

#include "server/http/http_server.hpp"
#include "server/jobs/job_manager.hpp"

namespace distilld {

/// What a job has been through: /v1/jobs/{id}/events, /checkpoints and /metrics. The manager must outlive the server
/// that the routes are given to.
std::vector<http::Route> make_history_routes(JobManager& manager);

}  // namespace distilld
