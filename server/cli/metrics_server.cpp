#include "server/cli/metrics_server.hpp"

#include <boost/asio/co_spawn.hpp>
#include <chrono>
#include <exception>
#include <utility>

#include "distilld_version.hpp"
#include "pipeline/async/failure_message.hpp"
#include "server/http/http_server.hpp"
#include "server/jobs/foreground_metrics.hpp"
#include "server/jobs/metrics_routes.hpp"
#include "server/support/log.hpp"

namespace distilld::cli {
namespace {

constexpr std::chrono::seconds kConnectionGrace{1};  // who waits for the run's end does not wait for a scraper
constexpr std::uint32_t kMaxConnections = 64;        // a scraper or two, and people who look

class ForegroundMetricsServer final : public MetricsServer {
  public:
    ForegroundMetricsServer(std::unique_ptr<http::Server> server, std::shared_ptr<JobMetrics> metrics,
                            std::uint32_t sequence_length)
        : server_(std::move(server)), metrics_(std::move(metrics), sequence_length) {}

    std::string url() const override { return "http://" + server_->address() + "/metrics"; }
    void count(const WorkerEvent& event) override { metrics_.count(event); }
    void stop() override { server_->stop(kConnectionGrace); }
    http::Server& server() { return *server_; }

  private:
    std::unique_ptr<http::Server> server_;
    ForegroundMetrics metrics_;
};

}  // namespace

Result<std::unique_ptr<MetricsServer>> make_metrics_server(boost::asio::any_io_executor executor,
                                                           const std::string& listen, std::uint32_t sequence_length) {
    auto metrics = make_job_metrics(JobMetricsOptions{.version = kVersion});
    http::ServerOptions options;
    options.listen = listen;
    options.max_connections = kMaxConnections;
    options.max_streams = 0;
    auto server = http::make_server(executor, options, make_metrics_routes(metrics), make_metrics_observer(metrics));
    if (!server) {
        return server.error();
    }
    auto made = std::make_unique<ForegroundMetricsServer>(std::move(*server), std::move(metrics), sequence_length);
    // The job goes on without its metrics.
    auto ended = [](const std::exception_ptr& failure) {
        if (failure) {
            log::error("metrics", failure_message(failure));
        }
    };
    boost::asio::co_spawn(executor, made->server().run(), ended);
    return std::unique_ptr<MetricsServer>(std::move(made));
}

}  // namespace distilld::cli
