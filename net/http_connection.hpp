#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/system/error_code.hpp>
#include <chrono>
#include <memory>
#include <string>

#include "net/byte_stream.hpp"
#include "net/endpoint_url.hpp"
#include "net/http_message.hpp"
#include "net/traffic_counters.hpp"

namespace distilld {

/// How one request on one connection went.
struct HttpExchange {
    boost::system::error_code failure;
    bool any_byte = false;  ///< of the response
    bool too_large = false;
    bool malformed = false;  ///< it is not HTTP, or bytes follow it
    bool whole = false;
    bool reusable = false;
    HttpResponse response;
};

/// What all requests to a server share.
struct HttpClient {
    std::string user_agent;
    std::string bearer;  ///< API key; never part of a message
};

/// Request line and fields, including the empty line.
[[nodiscard]] std::string request_head(const HttpRequest& request, const EndpointUrl& url, const HttpClient& client);

/// One HTTP/1.1 connection, plain or TLS. On the executor of its socket; one exchange at a time.
class HttpConnection {
  public:
    /// The handshake is done.
    explicit HttpConnection(ByteStream stream);
    ~HttpConnection();
    HttpConnection(const HttpConnection&) = delete;
    HttpConnection& operator=(const HttpConnection&) = delete;

    /// Sends `head` and the request's body and reads the answer, whatever its status. Arguments must outlive the
    /// coroutine. Throws operation_aborted when cancelled; the connection is unusable then.
    boost::asio::awaitable<HttpExchange> exchange(const HttpRequest& request, const std::string& head,
                                                  BufferPool& buffers, TrafficCounters& traffic);

    /// Between exchanges: whether nothing unexpected has come, including the peer's end.
    [[nodiscard]] bool is_quiet() { return stream_.is_quiet(); }

    std::chrono::steady_clock::time_point idle_since;  ///< for the connection's keeper

  private:
    struct Received;  // Beast's buffer, which few files need to see

    ByteStream stream_;
    std::unique_ptr<Received> received_;
};

/// Cancellation is not a failure of the connection: throws it as system_error.
void throw_if_aborted(boost::system::error_code failure);

}  // namespace distilld
