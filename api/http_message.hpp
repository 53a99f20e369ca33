#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace distilld::api {

using Headers = std::vector<std::pair<std::string, std::string>>;

/// A request as handlers see it: no Beast type. Header names compare without case.
struct Request {
    std::string method;                                                ///< upper case
    std::string path;                                                  ///< percent-decoded, without the query
    std::vector<std::pair<std::string, std::string>> query;            ///< percent-decoded, in order
    std::vector<std::pair<std::string, std::string>> path_parameters;  ///< {id} of the matched route
    Headers headers;
    std::string body;
    std::string remote;  ///< address of the peer, for logs

    [[nodiscard]] std::optional<std::string_view> header(std::string_view name) const;
    [[nodiscard]] std::optional<std::string_view> query_value(std::string_view name) const;
    [[nodiscard]] std::string_view path_parameter(std::string_view name) const;  ///< empty when absent
};

/// A body that is made while it is sent (server-sent events). Pulled by the session; one pull at a time. The session
/// cancels a pull (per-operation cancellation) when the client has gone or the server stops.
class BodyStream {
  public:
    virtual ~BodyStream() = default;
    /// The next piece, never empty; nullopt at the end. Ends by itself or waits at most some seconds for something to
    /// say, so that a heartbeat finds dead clients.
    virtual boost::asio::awaitable<std::optional<std::string>> next() = 0;
};

struct Response {
    unsigned status = 200;
    std::string content_type = "application/json";
    Headers headers;
    std::string body;
    std::unique_ptr<BodyStream> stream;                ///< set: sent in place of body, chunked
    std::shared_ptr<const void> until_sent = nullptr;  ///< let go of when the answer has been sent, or cannot be
    /// Of a stream whose size is known: it is announced, and not chunked. The stream gives so many bytes or fails.
    std::optional<std::uint64_t> content_length{};
};

}  // namespace distilld::api
