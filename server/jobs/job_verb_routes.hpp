#pragma once

#include <vector>

#include "server/http/http_server.hpp"
#include "server/jobs/job_manager.hpp"

namespace distilld {

/// The job as it is then, with `status`; or why the job cannot be asked for that. May refuse().
[[nodiscard]] api::Response verb_answer(const api::Request& request, const VerbOutcome& outcome, unsigned status);

/// What users ask of jobs that there are: POST cancel, pause, resume and checkpoint below /v1/jobs/{id}, and PATCH of
/// the job itself. The manager must outlive the server that the routes are given to.
std::vector<http::Route> make_job_verb_routes(JobManager& manager);

}  // namespace distilld
