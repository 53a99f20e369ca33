#pragma once

#include <vector>

#include "server/http/http_server.hpp"
#include "server/jobs/job_manager.hpp"

namespace distilld {

/// What a job has made: GET /v1/jobs/{id}/artifacts. An output that `admit` does not allow (a link leads
/// elsewhere by now) is as good as gone. `manager` must outlive the routes.
[[nodiscard]] std::vector<http::Route> make_artifact_routes(JobManager& manager, Admission admit = {});

}  // namespace distilld
