#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "base/error.hpp"
#include "pipeline/core/worker_events.hpp"
#include "server/http/http_server.hpp"
#include "server/jobs/metrics/foreground_metrics.hpp"

namespace distilld::cli {

/// Serves the metrics of a foreground job, with the rows of a service. On one executor, which must be a strand or a
/// single-threaded context.
class MetricsServer {
  public:
    /// Use make_metrics_server().
    MetricsServer(std::unique_ptr<http::Server> server, std::shared_ptr<JobMetrics> metrics,
                  std::uint32_t sequence_length);
    /// "http://127.0.0.1:9100/metrics", with the real port.
    [[nodiscard]] std::string url() const;
    /// Counts an event of the job's worker.
    void count(const WorkerEvent& event) { metrics_.count(event); }
    boost::asio::awaitable<void> run();
    /// Soon ends its work on the executor.
    void stop();

  private:
    std::unique_ptr<http::Server> server_;
    ForegroundMetrics metrics_;
};

/// Listens at once, and answers while the executor runs. An invalid address (invalid_input) or one in use (io) is an
/// error. `sequence_length` is the job's. Must outlive its work on the executor.
Result<std::unique_ptr<MetricsServer>> make_metrics_server(boost::asio::any_io_executor executor,
                                                           const std::string& listen, std::uint32_t sequence_length);

}  // namespace distilld::cli
