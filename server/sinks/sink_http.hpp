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
#include "pipeline/teacher/transport/http_message.hpp"
#include "server/sinks/sink.hpp"

namespace distilld::sinks {

/// An answer, or why there was none.
struct HttpReply {
    unsigned status = 0;       ///< 0: there was none
    boost::json::object body;  ///< of an answer that is a JSON object, else empty
    std::string trouble;       ///< of everything but 2xx: server, status and what it said
    std::optional<std::chrono::milliseconds> retry_after;

    [[nodiscard]] bool ok() const noexcept { return status >= 200 && status < 300; }
};

/// What a reply that is not ok() means: final, or worth another try (no answer, 408, 429, 5xx).
[[nodiscard]] SinkFailure failure_of(const HttpReply& reply);

struct SinkHttpOptions {
    std::string field{};  ///< of the spec, for messages
    std::string url{};
    std::string bearer{};                        ///< never part of a message
    std::vector<HttpHeader> headers{};           ///< neither are these
    std::chrono::milliseconds deadline{10'000};  ///< of one request, connection included
};

/// JSON over HTTP to one server, over connections that are kept. On one executor with one thread.
class SinkHttp {
  public:
    virtual ~SinkHttp() = default;

    /// `path` goes behind the URL's own path. Throws operation_aborted when cancelled.
    virtual boost::asio::awaitable<HttpReply> post(std::string path, boost::json::value body) = 0;
    virtual boost::asio::awaitable<HttpReply> get(std::string path) = 0;
};

/// The error names the field.
[[nodiscard]] Result<std::unique_ptr<SinkHttp>> make_sink_http(boost::asio::any_io_executor thread,
                                                               SinkHttpOptions options);

/// A text for a URL's query.
[[nodiscard]] std::string percent_encoded(std::string_view text);

/// The value of an Authorization header (RFC 7617).
[[nodiscard]] std::string basic_authorization(const std::string& user, const std::string& password);

}  // namespace distilld::sinks
