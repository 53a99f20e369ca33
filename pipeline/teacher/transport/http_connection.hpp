#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/system/error_code.hpp>
#include <chrono>
#include <memory>
#include <string>

#include "pipeline/teacher/transport/http_message.hpp"
#include "pipeline/teacher/transport/traffic_counters.hpp"

namespace distilld::net {
class ByteStream;
}  // namespace distilld::net

namespace distilld {

/// How one request on one connection went.
struct HttpExchange {
    boost::system::error_code failure;
    bool any_byte = false;  ///< of the response
    bool too_large = false;
    bool malformed = false;  ///< it is no HTTP, or has bytes behind it
    bool whole = false;
    bool reusable = false;
    HttpResponse response;
};

/// One HTTP/1.1 connection, plain or TLS. On the executor of its socket; one exchange at a time.
class HttpConnection {
  public:
    virtual ~HttpConnection() = default;

    /// Sends `head` and the request's body and reads the answer, whatever its status. What is passed must outlive the
    /// coroutine. Throws operation_aborted when cancelled; the connection is of no use then.
    virtual boost::asio::awaitable<HttpExchange> exchange(const HttpRequest& request, const std::string& head,
                                                          BufferPool& buffers, TrafficCounters& traffic) = 0;

    /// Between exchanges: whether nothing has come that nobody asked for, the peer's end among it.
    virtual bool is_quiet() = 0;

    std::chrono::steady_clock::time_point idle_since;  ///< for whoever keeps the connection
};

/// The handshake is done.
[[nodiscard]] std::unique_ptr<HttpConnection> make_http_connection(std::unique_ptr<net::ByteStream> stream);

/// Cancellation is not a failure of the connection: throws it as system_error.
void throw_if_aborted(boost::system::error_code failure);

}  // namespace distilld
