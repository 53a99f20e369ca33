#pragma once

#include <vector>

#include "server/http/http_server.hpp"
#include "server/jobs/job_manager.hpp"

namespace distilld {

/// The output of a job: GET /v1/jobs/{id}/artifacts. An output that `admit` does not allow (a link now leads elsewhere)
/// counts as gone. `manager` must outlive the routes.
[[nodiscard]] std::vector<http::Route> make_artifact_routes(JobManager& manager, SpecPolicy policy = {});

}  // namespace distilld
