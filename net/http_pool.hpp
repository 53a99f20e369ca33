#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ssl/context.hpp>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "net/endpoint_url.hpp"
#include "net/host_resolver.hpp"
#include "net/http_connection.hpp"
#include "net/http_connector.hpp"
#include "net/http_message.hpp"
#include "net/traffic_counters.hpp"
#include "pipeline/core/scheduling/fetch_failure.hpp"

namespace distilld {

struct HttpPoolOptions : HttpClient {
    std::chrono::milliseconds idle_limit{2500};     ///< servers close idle connections after 5 s
    std::chrono::milliseconds connect_limit{5000};  ///< per address, if there are several
    std::size_t max_idle = 256;
};

/// Keep-alive HTTP/1.1 connections to one endpoint, plain or TLS (SNI, verified host name). One executor with one
/// thread or a strand. It opens one connection per concurrent request, and keeps idle ones for `idle_limit`. A kept
/// connection that fails before the first byte of a response is replaced once by a new one.
class HttpPool {
  public:
    /// `resolver` is on the same executor and must outlive this. An https endpoint needs `tls`.
    HttpPool(boost::asio::any_io_executor executor, HostResolver& resolver, EndpointUrl url,
             std::shared_ptr<boost::asio::ssl::context> tls, std::shared_ptr<BufferPool> buffers,
             std::shared_ptr<TrafficCounters> traffic, HttpPoolOptions options);
    HttpPool(const HttpPool&) = delete;
    HttpPool& operator=(const HttpPool&) = delete;

    /// One request and its answer, whatever the status. Fails with `connection`, `rejected` (TLS refusal) or
    /// `bad_response` (not HTTP, or a body above the limit). Has no deadline of its own (it includes resolution,
    /// connection and handshake). Throws operation_aborted when cancelled, and closes the connection.
    boost::asio::awaitable<FetchResult<HttpResponse>> request(HttpRequest request);

    /// Closes idle connections.
    void close();

    [[nodiscard]] const EndpointUrl& url() const noexcept { return connector_.url(); }
    [[nodiscard]] std::size_t idle_count() const noexcept { return idle_.size(); }

  private:
    [[nodiscard]] FetchError failure(FailureKind kind, const std::string& what) const;
    /// The most recently used connection that is young enough and quiet: stray bytes would be taken for the next
    /// answer.
    std::unique_ptr<HttpConnection> take_idle();
    void retire_old();
    void keep(std::unique_ptr<HttpConnection> connection);
    boost::asio::awaitable<FetchResult<HttpResponse>> ask(HttpRequest request);
    FetchResult<HttpResponse> finish(std::unique_ptr<HttpConnection> connection, HttpExchange exchange,
                                     const HttpRequest& request);

    HttpConnector connector_;
    std::shared_ptr<BufferPool> buffers_;
    std::shared_ptr<TrafficCounters> traffic_;
    HttpPoolOptions options_;
    std::vector<std::unique_ptr<HttpConnection>> idle_;
    bool closed_ = false;
};

}  // namespace distilld
