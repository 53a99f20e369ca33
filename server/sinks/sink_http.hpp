#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "net/http_pool.hpp"
#include "server/sinks/sink.hpp"

namespace distilld::sinks {

/// An answer, or the reason for its absence.
struct HttpReply {
    unsigned status = 0;       ///< 0: no answer
    boost::json::object body;  ///< if the answer is a JSON object; otherwise empty
    std::string trouble;       ///< set except for 2xx: server, status and its message
    std::optional<std::chrono::milliseconds> retry_after;

    [[nodiscard]] bool ok() const noexcept { return status >= 200 && status < 300; }
};

/// The failure of a reply that is not ok(): final, or worth a retry (no answer, 408, 429, 5xx).
[[nodiscard]] SinkFailure failure_of(const HttpReply& reply);

struct SinkHttpOptions {
    std::string field{};  ///< of the spec, for messages
    std::string url{};
    std::string bearer{};                        ///< never part of a message
    std::vector<HttpHeader> headers{};           ///< never part of a message, either
    std::chrono::milliseconds deadline{10'000};  ///< for one request, connection included
};

/// JSON over HTTP to one server, with persistent connections. On one executor with one thread.
class SinkHttp {
  public:
    /// Use make_sink_http().
    SinkHttp(boost::asio::any_io_executor thread, EndpointUrl url, std::shared_ptr<boost::asio::ssl::context> tls,
             SinkHttpOptions options);

    /// `path` is appended to the URL's path. Throws operation_aborted when cancelled.
    boost::asio::awaitable<HttpReply> post(std::string path, boost::json::value body);
    boost::asio::awaitable<HttpReply> get(std::string path);

  private:
    boost::asio::awaitable<HttpReply> send(HttpRequest request, std::string path);

    std::string base_path_;
    SinkHttpOptions options_;
    HostResolver resolver_;
    HttpPool pool_;
};

/// The error names the field.
[[nodiscard]] Result<std::unique_ptr<SinkHttp>> make_sink_http(boost::asio::any_io_executor thread,
                                                               SinkHttpOptions options);

/// Encodes a text for a URL's query.
[[nodiscard]] std::string percent_encoded(std::string_view text);

/// The value of an Authorization header (RFC 7617).
[[nodiscard]] std::string basic_authorization(const std::string& user, const std::string& password);

}  // namespace distilld::sinks
