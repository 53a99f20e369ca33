#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/caller.hpp"

namespace distilld::api {

using Headers = std::vector<std::pair<std::string, std::string>>;

/// How far a body that is read while it arrives has come.
enum class BodyEnd {
    not_yet,
    whole,
    too_large,  ///< it goes on beyond the route's limit: 413
    malformed,  ///< it is not chunked as it says: 400
    lost,       ///< the client left, or was too slow: nobody reads an answer
};

struct BodyPiece {
    std::string bytes;  ///< may be empty at the end
    BodyEnd end = BodyEnd::not_yet;
};

/// A body that is read while it arrives, for those too large for the memory. One pull at a time, by the handler; it is
/// of no use once the handler has answered. A pull waits no longer than a slow client may take for a piece.
class BodySource {
  public:
    virtual ~BodySource() = default;
    /// The next piece; after the last, the same end again.
    virtual boost::asio::awaitable<BodyPiece> next() = 0;
};

/// A request as handlers see it: no Beast type. Header names compare without case.
struct Request {
    std::string method;                                                ///< upper case
    std::string path;                                                  ///< percent-decoded, without the query
    std::vector<std::pair<std::string, std::string>> query;            ///< percent-decoded, in order
    std::vector<std::pair<std::string, std::string>> path_parameters;  ///< {id} of the matched route
    Headers headers;
    std::string body;
    std::shared_ptr<BodySource> body_source = nullptr;  ///< in place of `body`, of a route that asks for it
    std::string remote;                                 ///< address of the peer, for logs
    std::optional<Caller> caller;  ///< nothing: the server asks for no keys, or the route is open to all

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
