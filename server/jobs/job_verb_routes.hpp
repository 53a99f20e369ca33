#pragma once

#include <vector>

#include "server/http/http_server.hpp"
#include "server/jobs/job_manager.hpp"

namespace distilld {

/// What users ask of jobs that there are: POST cancel, pause, resume and checkpoint below /v1/jobs/{id}, and PATCH of
/// the job itself. The manager must outlive the server that the routes are given to.
std::vector<http::Route> make_job_verb_routes(JobManager& manager);

}  // namespace distilld
