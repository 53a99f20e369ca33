#pragma once

#include <span>
#include <vector>

#include "server/http/http_server.hpp"
#include "server/jobs/job_manager.hpp"

namespace distilld {

/// Requests about existing jobs: POST /v1/jobs/{id}/NAME for each verb, and PATCH of the job itself. The manager must
/// outlive the server that serves the routes, and the names of the verbs must outlive the routes.
std::vector<http::Route> make_job_verb_routes(JobManager& manager, std::span<const JobVerb> verbs = job_verbs());

}  // namespace distilld
