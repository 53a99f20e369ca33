#pragma once

#include <memory>
#include <vector>

#include "server/http/http_server.hpp"
#include "server/jobs/job_metrics.hpp"

namespace distilld {

/// /metrics and /healthz: what a scraper and a probe ask of a service, and of a job in the foreground. Answered under
/// any name.
std::vector<http::Route> make_metrics_routes(std::shared_ptr<JobMetrics> metrics);

/// Feeds `metrics` with every answer of a server.
http::Observer make_metrics_observer(std::shared_ptr<JobMetrics> metrics);

}  // namespace distilld
