#include "server/http/web_socket_session.hpp"

#include <boost/beast/core/string.hpp>
#include <boost/beast/http/rfc7230.hpp>
#include <string_view>
#include <utility>

#include "net/web_socket.hpp"
#include "pipeline/async/deadline.hpp"
#include "server/http/reply.hpp"
#include "server/http/stream_writer.hpp"
#include "server/support/log.hpp"

namespace distilld::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;

constexpr std::size_t kKeyBytes = 24;  // 16 bytes in base64

/// What the two directions of a connection share.
struct Talk {
    WebSocket& socket;
    http::MessagePeer& peer;
    bool closing = false;  ///< we end it
    std::string wrong{};   ///< how it broke, or what the peer did wrong
};

asio::awaitable<void> read_messages(Talk& talk) {
    for (;;) {
        auto message = co_await talk.socket.read();
        if (message.closed || talk.closing) {
            co_return;
        }
        if (message.failure) {
            talk.wrong = message.failure.message();
            co_return;
        }
        auto refusal = co_await talk.peer.take(std::move(message.text));
        if (refusal) {
            talk.wrong = refusal->reason;
            co_await talk.socket.close(*std::move(refusal));
            co_return;
        }
    }
}

asio::awaitable<void> write_messages(Talk& talk) {
    for (;;) {
        auto message = co_await talk.peer.next();
        if (message.closed) {
            talk.closing = true;
            co_await talk.socket.close(*std::move(message.closed));
            co_return;
        }
        const auto failed = co_await talk.socket.write(std::move(message.text));
        if (failed) {
            co_return;
        }
    }
}

/// Until either ends.
asio::awaitable<void> pass_messages(Talk& talk) {
    co_await run_until(read_messages(talk), write_messages(talk));
}

}  // namespace

std::optional<std::string> web_socket_key(const http::Request& request) {
    const auto upgrade = request.header("upgrade").value_or("");
    const auto connection = request.header("connection").value_or("");
    const auto key = request.header("sec-websocket-key").value_or("");
    const bool asks = request.method == "GET" && beast::iequals(upgrade, "websocket") &&
                      beast::http::token_list(connection).exists("upgrade") &&
                      request.header("sec-websocket-version").value_or("") == "13" && key.size() == kKeyBytes;
    return asks ? std::optional<std::string>(key) : std::nullopt;
}

http::Response upgrade_required() {
    http::Response answer = make_problem(426, "this path is for WebSockets (version 13)");
    answer.headers = {{"Upgrade", "websocket"}, {"Sec-WebSocket-Version", "13"}};
    return answer;
}

asio::awaitable<void> serve_web_socket(Connection& connection, SessionContext& context,
                                       std::shared_ptr<http::MessagePeer> peer, std::string key,
                                       std::size_t message_limit, std::string label) {
    WebSocketLimits limits;
    limits.message_bytes = message_limit;
    const auto socket = make_web_socket(connection.stream, limits);
    const auto refused = co_await socket->accept(std::move(key));
    if (refused) {
        co_return;
    }
    Talk talk{*socket, *peer};
    co_await run_until(pass_messages(talk), until_streams_are_over(context));
    connection.stream.close();
    if (!talk.wrong.empty()) {
        log::warn("http", label + ": the connection of " + connection.remote + " ended: " + talk.wrong);
    }
}

}  // namespace distilld::http
