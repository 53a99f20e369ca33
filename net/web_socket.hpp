#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/system/error_code.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "net/byte_stream.hpp"

namespace distilld {

struct WebSocketLimits {
    std::size_t message_bytes = std::size_t{1} << 20;  ///< of a received message
    /// A peer that says nothing for so long, not even in answer to a ping after half of it, is gone.
    std::chrono::seconds silence{40};
    std::chrono::seconds write{60};  ///< for a peer that does not read
};

/// How a peer ended a connection, or how we end it (RFC 6455, section 7.4).
struct WebSocketClose {
    std::uint16_t code = 1000;
    std::string reason{};
};

/// A message, or why there is none.
struct WebSocketMessage {
    std::string text{};
    std::optional<WebSocketClose> closed{};  ///< by the peer
    boost::system::error_code failure{};     ///< the connection broke, or the peer broke a rule
};

/// Text messages over a ByteStream, which must outlive this and is used by nothing else (RFC 6455). One read and one
/// write at a time. Cancellation (terminal) throws operation_aborted; the connection is unusable then.
class WebSocket {
  public:
    virtual ~WebSocket() = default;

    /// As the server: answers a request whose Sec-WebSocket-Key is `key`.
    virtual boost::asio::awaitable<boost::system::error_code> accept(std::string key) = 0;

    struct Opened {
        boost::system::error_code failure{};
        unsigned status = 0;      ///< of a server that refuses; 0: there was none
        std::string challenge{};  ///< its WWW-Authenticate
    };
    /// As the client, with a bearer token.
    virtual boost::asio::awaitable<Opened> open(std::string host, std::string target, std::string bearer,
                                                std::string user_agent) = 0;

    virtual boost::asio::awaitable<WebSocketMessage> read() = 0;
    virtual boost::asio::awaitable<boost::system::error_code> write(std::string text) = 0;
    /// Tells the peer why the connection ends. Does not wait long for its answer.
    virtual boost::asio::awaitable<void> close(WebSocketClose why) = 0;
};

[[nodiscard]] std::unique_ptr<WebSocket> make_web_socket(ByteStream& stream, WebSocketLimits limits);

}  // namespace distilld
