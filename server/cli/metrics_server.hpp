#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "base/error.hpp"
#include "pipeline/core/worker_events.hpp"

namespace distilld::cli {

/// Serves the metrics of a job in the foreground: the very rows that a service has. On one executor, which must be a
/// strand or a single-threaded context.
class MetricsServer {
  public:
    virtual ~MetricsServer() = default;
    /// "http://127.0.0.1:9100/metrics", with the real port.
    [[nodiscard]] virtual std::string url() const = 0;
    /// What the job's worker says.
    virtual void count(const WorkerEvent& event) = 0;
    /// Ends what it runs on the executor, soon.
    virtual void stop() = 0;
};

/// Listens at once, and answers while the executor runs. An address that is none (invalid_input) or is in use (io) is
/// an error. `sequence_length` is the job's. Outlives what runs on the executor.
Result<std::unique_ptr<MetricsServer>> make_metrics_server(boost::asio::any_io_executor executor,
                                                           const std::string& listen, std::uint32_t sequence_length);

}  // namespace distilld::cli
