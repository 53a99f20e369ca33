#include "server/jobs/routes/metrics_routes.hpp"

#include <utility>

#include "base/json_text.hpp"
#include "server/support/metrics.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using http::Request;
using http::Response;

asio::awaitable<Response> metrics_text_of(std::shared_ptr<JobMetrics> metrics) {
    Response response;
    response.content_type = kMetricsContentType;
    response.body = metrics->text();
    co_return response;
}

asio::awaitable<Response> healthy() {
    const boost::json::object body{{"status", "ok"}};
    Response response;
    response.body = to_text(body);
    co_return response;
}

http::Route route(const char* pattern, http::Handler handler) {
    http::Route row{"GET", pattern, std::move(handler)};
    row.json_body = true;
    row.vital = true;
    row.any_host = true;
    return row;
}

}  // namespace

std::vector<http::Route> make_metrics_routes(std::shared_ptr<JobMetrics> metrics) {
    http::Route health = route("/healthz", [](const Request&) { return healthy(); });
    health.right = http::Right::nothing;
    return {
        health,
        route("/metrics", [metrics = std::move(metrics)](const Request&) { return metrics_text_of(metrics); }),
    };
}

http::Observer make_metrics_observer(std::shared_ptr<JobMetrics> metrics) {
    return [metrics = std::move(metrics)](const std::string& method, const std::string& pattern, unsigned status,
                                          std::chrono::nanoseconds duration) {
        metrics->http_request(method, pattern, status, duration);
    };
}

}  // namespace distilld
