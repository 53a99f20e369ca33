#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/problem.hpp"
#include "net/web_socket.hpp"
#include "server/http/caller.hpp"

namespace distilld::http {

using Headers = std::vector<std::pair<std::string, std::string>>;

/// State of a body that is read while it arrives.
enum class BodyEnd {
    not_yet,
    whole,
    too_large,  ///< longer than the route's limit: 413
    malformed,  ///< its chunks are malformed: 400
    lost,       ///< the client left or was too slow: nothing reads an answer
};

struct BodyPiece {
    std::string bytes;  ///< may be empty at the end
    BodyEnd end = BodyEnd::not_yet;
};

/// A body that is read while it arrives, for bodies too large for memory. The handler calls next(), one call at a time,
/// and only until it has answered. A call waits no longer than a slow client may take for a piece.
class BodySource {
  public:
    virtual ~BodySource() = default;
    /// The next piece; after the last one, the same end again.
    virtual boost::asio::awaitable<BodyPiece> next() = 0;
};

/// A request as handlers see it, without Beast types. Header names compare case-insensitively.
struct Request {
    std::string method;                                                ///< upper case
    std::string path;                                                  ///< percent-decoded, without the query
    std::vector<std::pair<std::string, std::string>> query;            ///< percent-decoded, in order
    std::vector<std::pair<std::string, std::string>> path_parameters;  ///< {id} of the matched route
    Headers headers;
    std::string body;
    std::shared_ptr<BodySource> body_source = nullptr;  ///< replaces `body` on routes with streamed_body
    std::string remote;                                 ///< address of the peer, for logs
    std::optional<Caller> caller;  ///< nullopt: the server needs no keys, or the route is open to all

    [[nodiscard]] std::optional<std::string_view> header(std::string_view name) const;
    [[nodiscard]] std::optional<std::string_view> query_value(std::string_view name) const;
    [[nodiscard]] std::string_view path_parameter(std::string_view name) const;  ///< empty when absent
};

/// A body that is produced while it is sent (server-sent events). The session calls next(), one call at a time, and
/// cancels a call (per-operation cancellation) when the client has left or the server stops.
class BodyStream {
  public:
    virtual ~BodyStream() = default;
    /// The next piece, never empty; nullopt at the end. Returns within some seconds even without news, so that a
    /// heartbeat finds dead clients.
    virtual boost::asio::awaitable<std::optional<std::string>> next() = 0;
};

/// What speaks over a WebSocket. The session calls take() and next(), one call of each at a time, and cancels them when
/// the client has left or the server stops.
class MessagePeer {
  public:
    virtual ~MessagePeer() = default;
    /// A message of the client; the next one is read afterwards. A value ends the connection.
    virtual boost::asio::awaitable<std::optional<WebSocketClose>> take(std::string message) = 0;
    /// The next message to the client; with `closed`, the connection ends instead.
    virtual boost::asio::awaitable<WebSocketMessage> next() = 0;
};

struct Response {
    unsigned status = 200;
    std::string content_type = "application/json";
    Headers headers;
    std::string body;
    std::unique_ptr<BodyStream> stream;                ///< if set, sent in place of body, chunked
    std::shared_ptr<MessagePeer> messages = nullptr;   ///< if set, the connection becomes a WebSocket of its route
    std::shared_ptr<const void> until_sent = nullptr;  ///< released when the answer has been sent, or cannot be
    /// Size of the stream, if known: announced instead of chunking. The stream yields exactly this size or fails.
    std::optional<std::uint64_t> content_length{};
    std::string pattern{};  ///< counts as an answer of this route; empty: of the one that was matched
};

/// The answer for a problem; `headers` are sent with it.
[[nodiscard]] Response to_response(api::Problem problem, Headers headers = {});

}  // namespace distilld::http
