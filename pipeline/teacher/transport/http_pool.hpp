#pragma once

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ssl/context.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "pipeline/teacher/teacher_source.hpp"
#include "pipeline/teacher/transport/body_buffer.hpp"
#include "pipeline/teacher/transport/endpoint_url.hpp"

namespace distilld {

struct HttpRequest {
    bool post = true;    ///< otherwise GET
    std::string target;  ///< path and query
    std::string content_type;
    std::optional<std::size_t> kserve_header_length;  ///< Inference-Header-Content-Length
    std::shared_ptr<const std::string> body;          ///< may be null
    std::uint64_t response_limit = 0;                 ///< largest body of a 2xx answer that is accepted
};

struct HttpResponse {
    unsigned status = 0;
    std::string content_type;
    std::optional<std::string> kserve_header_length;       ///< as sent
    std::optional<std::chrono::milliseconds> retry_after;  ///< retry-after-ms, or Retry-After (seconds or date)
    std::shared_ptr<BodyBuffer> body;                      ///< at most kErrorBodyLimit bytes unless the status is 2xx
};

[[nodiscard]] inline bool is_success(const HttpResponse& response) noexcept {
    return response.status >= 200 && response.status < 300;
}

inline constexpr std::size_t kErrorBodyLimit = std::size_t{64} << 10U;

/// What went over the wire; written on the I/O thread, read on any.
struct TrafficCounters {
    std::atomic<std::uint64_t> requests{0};
    std::atomic<std::uint64_t> bytes_sent{0};
    std::atomic<std::uint64_t> bytes_received{0};
    std::atomic<std::uint64_t> connections_opened{0};
    std::atomic<std::uint64_t> stale_connections{0};  ///< kept ones that turned out closed and were reopened
};

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
    /// `tls` is needed for an https endpoint.
    HttpPool(boost::asio::any_io_executor executor, EndpointUrl url, std::shared_ptr<boost::asio::ssl::context> tls,
             std::shared_ptr<BufferPool> buffers, std::shared_ptr<TrafficCounters> traffic, HttpPoolOptions options);
    ~HttpPool();
    HttpPool(const HttpPool&) = delete;
    HttpPool& operator=(const HttpPool&) = delete;

    /// One request and its answer, whatever the status. Fails with `connection`, `rejected` (unknown host, TLS refusal)
    /// or `bad_response` (not HTTP, or a body above the limit). Has no deadline of its own (resolution, connection and
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

/// TLS client settings: system certificates, `ca_file` beside them when not empty, peer verified. The error names the
/// file.
[[nodiscard]] Result<std::shared_ptr<boost::asio::ssl::context>> make_tls_client_context(const std::string& ca_file);

}  // namespace distilld
