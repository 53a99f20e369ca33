#pragma once

#include <memory>
#include <vector>

#include "server/http/http_server.hpp"
#include "server/jobs/metrics/job_metrics.hpp"

namespace distilld {

/// /metrics and /healthz, for scrapers and probes of a service or of a foreground job. Answered under any host name.
std::vector<http::Route> make_metrics_routes(std::shared_ptr<JobMetrics> metrics);

/// Feeds `metrics` with every answer of a server.
http::Observer make_metrics_observer(std::shared_ptr<JobMetrics> metrics);

}  // namespace distilld
