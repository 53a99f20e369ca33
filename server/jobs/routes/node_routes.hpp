#pragma once

#include <vector>

#include "server/http/http_server.hpp"
#include "server/jobs/job_manager.hpp"

namespace distilld {

/// The machines that run workers: /v1/nodes. The manager must outlive the server that serves the routes.
std::vector<http::Route> make_node_routes(JobManager& manager);

}  // namespace distilld
