#pragma once

#include <vector>

#include "server/http/http_server.hpp"
#include "server/jobs/job_manager.hpp"

namespace distilld {

/// The history of a job: /v1/jobs/{id}/events, /checkpoints and /metrics. The manager must outlive the server that
/// serves the routes.
std::vector<http::Route> make_history_routes(JobManager& manager);

}  // namespace distilld
