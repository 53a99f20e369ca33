#include "server/cli/metrics_server.hpp"

#include <boost/asio/co_spawn.hpp>
#include <chrono>
#include <exception>
#include <utility>

#include "distilld_version.hpp"
#include "pipeline/async/failure_message.hpp"
#include "server/http/http_server.hpp"
#include "server/jobs/metrics/foreground_metrics.hpp"
#include "server/jobs/routes/metrics_routes.hpp"
#include "server/support/log.hpp"

namespace distilld::cli {
namespace {

constexpr std::chrono::seconds kScraperGrace{1};  // the end of the run must not wait long for a scraper
constexpr std::uint32_t kMaxConnections = 64;     // a scraper or two, and a few people

}  // namespace

MetricsServer::MetricsServer(std::unique_ptr<http::Server> server, std::shared_ptr<JobMetrics> metrics,
                             std::uint32_t sequence_length)
    : server_(std::move(server)), metrics_(std::move(metrics), sequence_length) {}

std::string MetricsServer::url() const {
    return "http://" + server_->address() + "/metrics";
}

boost::asio::awaitable<void> MetricsServer::run() {
    return server_->run();
}

void MetricsServer::stop() {
    server_->stop(kScraperGrace);
}

Result<std::unique_ptr<MetricsServer>> make_metrics_server(boost::asio::any_io_executor executor,
                                                           const std::string& listen, std::uint32_t sequence_length) {
    auto metrics = std::make_shared<JobMetrics>(JobMetricsOptions{.version = kVersion});
    http::ServerOptions options;
    options.listen = listen;
    options.max_connections = kMaxConnections;
    options.max_streams = 0;
    auto server = http::make_server(executor, options, make_metrics_routes(metrics), make_metrics_observer(metrics));
    if (!server) {
        return server.error();
    }
    auto made = std::make_unique<MetricsServer>(std::move(*server), std::move(metrics), sequence_length);
    // The job continues without its metrics.
    auto ended = [](const std::exception_ptr& failure) {
        if (failure) {
            log::error("metrics", failure_message(failure));
        }
    };
    boost::asio::co_spawn(executor, made->run(), ended);
    return made;
}

}  // namespace distilld::cli
