#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ssl/context.hpp>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "pipeline/teacher/teacher_source.hpp"
#include "pipeline/teacher/transport/endpoint_url.hpp"
#include "pipeline/teacher/transport/host_resolver.hpp"
#include "pipeline/teacher/transport/http_message.hpp"
#include "pipeline/teacher/transport/traffic_counters.hpp"

namespace distilld {

struct HttpPoolOptions {
    std::string user_agent;
    std::string bearer;                             ///< API key; never part of a message
    std::chrono::milliseconds idle_limit{2500};     ///< servers close idle connections after 5 s
    std::chrono::milliseconds connect_limit{5000};  ///< of one address, when there are several
    std::size_t max_idle = 256;
};

/// Keep-alive HTTP/1.1 connections to one endpoint, plain or TLS (SNI, host name verified). One executor with one
/// thread or a strand. It opens as many connections as there are requests at once, and keeps idle ones for
/// `idle_limit`. A kept connection that fails before the first byte of a response is replaced once by a new one.
class HttpPool {
  public:
    /// `resolver` is on the same executor and outlives this. `tls` is needed for an https endpoint.
    HttpPool(boost::asio::any_io_executor executor, HostResolver& resolver, EndpointUrl url,
             std::shared_ptr<boost::asio::ssl::context> tls, std::shared_ptr<BufferPool> buffers,
             std::shared_ptr<TrafficCounters> traffic, HttpPoolOptions options);
    ~HttpPool();
    HttpPool(const HttpPool&) = delete;
    HttpPool& operator=(const HttpPool&) = delete;

    /// One request and its answer, whatever the status. Fails with `connection`, `rejected` (TLS refusal) or
    /// `bad_response` (not HTTP, or a body above the limit). Has no deadline of its own (resolution, connection and
    /// handshake are part of it). Throws operation_aborted when cancelled; the connection is closed then.
    boost::asio::awaitable<FetchResult<HttpResponse>> request(HttpRequest request);

    /// Closes idle connections.
    void close();

    [[nodiscard]] const EndpointUrl& url() const noexcept;
    [[nodiscard]] std::size_t idle_count() const noexcept;

  private:
    struct Implementation;
    std::unique_ptr<Implementation> implementation_;
};

}  // namespace distilld
