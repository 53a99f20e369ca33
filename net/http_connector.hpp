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
#include "net/byte_stream.hpp"
#include "net/endpoint_url.hpp"
#include "net/host_resolver.hpp"
#include "net/http_connection.hpp"
#include "pipeline/core/scheduling/fetch_failure.hpp"

namespace distilld {

/// Opens connections to one endpoint: resolution, TCP, and for https TLS with SNI and a check of the host name. On one
/// executor with one thread or a strand; any number of connections at once.
class HttpConnector {
  public:
    /// `resolver` is on the same executor and must outlive this. An https endpoint needs `tls`. `connect_limit` applies
    /// per address if there are several.
    HttpConnector(boost::asio::any_io_executor executor, HostResolver& resolver, EndpointUrl url,
                  std::shared_ptr<boost::asio::ssl::context> tls, std::shared_ptr<TrafficCounters> traffic,
                  std::chrono::milliseconds connect_limit);

    /// Only the stream, for another protocol. See connect().
    boost::asio::awaitable<FetchResult<std::unique_ptr<ByteStream>>> open();

    /// Tries the host's addresses in order. Fails with `connection` (also for an unknown host) or `rejected` (TLS
    /// refusal). Has no deadline of its own. Throws operation_aborted when cancelled.
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

}  // namespace distilld
