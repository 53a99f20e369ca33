#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "pipeline/teacher/teacher_source.hpp"
#include "pipeline/teacher/transport/endpoint_url.hpp"
#include "pipeline/teacher/transport/host_resolver.hpp"
#include "pipeline/teacher/transport/http_connection.hpp"

namespace distilld {

/// Opens connections to one endpoint: resolution, TCP, and for https TLS with SNI and a check of the host name. On one
/// executor with one thread or a strand; any number of connections at once.
class HttpConnector {
  public:
    /// `resolver` is on the same executor and outlives this. `tls` is needed for an https endpoint. `connect_limit` is
    /// of one address, when there are several.
    HttpConnector(boost::asio::any_io_executor executor, HostResolver& resolver, EndpointUrl url,
                  std::shared_ptr<boost::asio::ssl::context> tls, std::shared_ptr<TrafficCounters> traffic,
                  std::chrono::milliseconds connect_limit);

    /// Tries the host's addresses in their order. Fails with `connection` (unknown host too) or `rejected` (TLS
    /// refusal).
    /// Has no deadline of its own. Throws operation_aborted when cancelled.
    boost::asio::awaitable<FetchResult<std::unique_ptr<HttpConnection>>> connect();

    [[nodiscard]] const EndpointUrl& url() const noexcept { return url_; }

  private:
    using Addresses = std::vector<boost::asio::ip::tcp::endpoint>;

    [[nodiscard]] FetchError failure(FailureKind kind, const std::string& what) const;
    boost::asio::awaitable<FetchResult<Addresses>> resolve();

    boost::asio::any_io_executor executor_;
    HostResolver& resolver_;
    EndpointUrl url_;
    std::shared_ptr<boost::asio::ssl::context> tls_;
    std::shared_ptr<TrafficCounters> traffic_;
    std::chrono::milliseconds connect_limit_;
    Addresses addresses_;  ///< of the host; kept until a connection fails
};

/// TLS client settings: system certificates, `ca_file` beside them when not empty, peer verified. The error names the
/// file and its field of the job spec.
[[nodiscard]] Result<std::shared_ptr<boost::asio::ssl::context>> make_tls_client_context(const std::string& ca_file);

}  // namespace distilld
