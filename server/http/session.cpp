#include "server/http/session.hpp"

#include <optional>
#include <string>
#include <utility>

#include "base/scope_exit.hpp"
#include "pipeline/async/deadline.hpp"
#include "server/http/handler_call.hpp"
#include "server/http/response_writer.hpp"
#include "server/http/stream_writer.hpp"
#include "server/http/watches.hpp"
#include "server/http/web_socket_session.hpp"

namespace distilld::http {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr std::size_t kFirstRead = 4U << 10;
constexpr unsigned kClientClosedRequest = 499;  // nginx's status, for metrics; never sent
constexpr std::chrono::seconds kFullDeadline{2};
constexpr std::chrono::seconds kLingerDeadline{1};
constexpr std::size_t kMaxLingerBytes = 1U << 20;

}  // namespace

Session::Session(asio::ip::tcp::socket socket, std::shared_ptr<SessionContext> context)
    : context_(std::move(context)), connection_(std::move(socket), context_->options.tls.get()) {}

void Session::stop() {
    if (connection_.idle) {
        error_code ignored;
        connection_.stream.socket().cancel(ignored);
    }
}

asio::awaitable<bool> Session::shake_hands(std::chrono::seconds timeout) {
    connection_.stream.expires_after(timeout);
    const error_code failed = co_await connection_.stream.handshake(asio::ssl::stream_base::server);
    if (failed) {
        connection_.stream.close();
    }
    co_return !failed;
}

asio::awaitable<void> Session::run() {
    const bool known = co_await shake_hands(context_->options.header_timeout);
    if (!known) {
        co_return;
    }
    bool answered = false;
    while (!context_->stopping) {
        connection_.idle = true;
        const auto timeout = answered ? context_->options.idle_timeout : context_->options.header_timeout;
        const bool spoken = co_await wait_for_peer(timeout);
        if (!spoken) {
            co_await close(false);
            co_return;
        }
        const bool go_on = co_await exchange();
        answered = true;
        if (!go_on) {
            break;
        }
    }
    connection_.idle = true;
    co_await close(answered);
}

asio::awaitable<void> Session::run_when_full() {
    // Read the request first: closing a socket with unread bytes resets it and loses the answer.
    const bool known = co_await shake_hands(kFullDeadline);
    if (!known) {
        co_return;
    }
    std::optional<IncomingRequest> incoming = co_await read_request_when_full(connection_, *context_);
    if (incoming) {
        co_await answer(std::move(*incoming));
    }
    co_await close(true);
}

asio::awaitable<bool> Session::wait_for_peer(std::chrono::seconds timeout) {
    if (connection_.buffer.size() > 0) {
        co_return true;
    }
    connection_.stream.expires_after(timeout);
    const auto read = co_await connection_.stream.read_some(connection_.buffer.prepare(kFirstRead));
    connection_.buffer.commit(read.bytes);
    co_return !read.failure;
}

asio::awaitable<bool> Session::exchange() {
    std::optional<IncomingRequest> incoming = co_await read_request(connection_, *context_);
    if (!incoming) {
        co_return false;
    }
    co_return co_await answer(std::move(*incoming));
}

asio::awaitable<bool> Session::answer(IncomingRequest incoming) {
    connection_.idle = false;
    Reply reply = std::move(incoming.reply);
    std::optional<http::Response> answer = std::move(incoming.refusal);
    const auto caller = incoming.request.caller;
    const auto authenticator = context_->authenticator_of(incoming.route);
    if (!answer && caller) {
        answer = authenticator->revocation(*caller);  // during the read of the body
    }
    const std::size_t message_limit = incoming.route != nullptr ? incoming.route->message_limit : 0;
    std::optional<std::string> socket_key;
    if (!answer && message_limit > 0) {
        socket_key = web_socket_key(incoming.request);
        if (!socket_key || connection_.buffer.size() > 0) {  // messages follow the answer
            answer = upgrade_required();
        }
    }
    if (!answer) {
        auto deadline = context_->options.handler_timeout;
        if (incoming.body) {
            deadline += Connection::transfer_time(incoming.body->expected_bytes());
        }
        auto calling = call_handler(connection_, *incoming.route, std::move(incoming.request), deadline, reply.label());
        if (incoming.body && caller) {
            auto outcome = co_await run_until(std::move(calling), until_revoked(authenticator, *caller));
            answer = outcome ? std::move(*outcome) : authenticator->revocation(*caller);
        } else {
            answer = co_await std::move(calling);
        }
        if (!answer) {
            context_->observe(reply, kClientClosedRequest);
            co_return false;
        }
    }
    if (!answer->pattern.empty()) {
        reply.pattern = std::move(answer->pattern);
    }
    if (incoming.body && !incoming.body->whole()) {
        reply.keep_alive = false;  // the rest of the body is where the next request would begin
    }
    if (context_->stopping) {
        reply.keep_alive = false;
    }
    const bool lasts = (answer->stream && !reply.head) || answer->messages;
    if (lasts && context_->streams >= context_->options.max_streams) {
        // Streams last for hours: without a limit of their own they would take every connection.
        answer = make_problem(503, "the server has no free stream");
        answer->headers.emplace_back("Retry-After", "10");
    }
    if (answer->messages) {
        co_await pass_messages(std::move(answer->messages), *std::move(socket_key), message_limit, std::move(reply));
        co_return false;
    }
    if (answer->stream && !reply.head) {
        co_return co_await send_stream(std::move(*answer), std::move(reply), caller);
    }
    co_return co_await send(std::move(*answer), std::move(reply));
}

asio::awaitable<bool> Session::send(http::Response response, Reply reply) {
    const unsigned status = response.status;
    std::string made;
    for (const auto& [name, value] : response.headers) {
        if (name == "Location") {
            made = value;
        }
    }
    const error_code failed = co_await write_response(connection_, response, reply);
    context_->observe(reply, status, made);
    co_return !failed && reply.keep_alive;
}

asio::awaitable<bool> Session::send_stream(http::Response response, Reply reply, std::optional<http::Caller> caller) {
    ++context_->streams;
    const ScopeExit counted([this] { --context_->streams; });
    const bool chunked = reply.version == 11 && !response.content_length;
    if (!chunked && !response.content_length) {
        reply.keep_alive = false;  // HTTP/1.0: the connection ends with the body
    }
    const error_code failed = co_await write_response(connection_, response, reply);
    context_->observe(reply, response.status);
    if (failed) {
        co_return false;
    }
    auto streaming =
        write_stream(connection_, *context_, std::move(response.stream), chunked, std::move(caller), reply.label());
    const bool whole = co_await std::move(streaming);
    co_return whole&& reply.keep_alive;
}

asio::awaitable<void> Session::pass_messages(std::shared_ptr<http::MessagePeer> peer, std::string key,
                                             std::size_t message_limit, Reply reply) {
    ++context_->streams;
    const ScopeExit counted([this] { --context_->streams; });
    context_->observe(reply, 101);
    co_await serve_web_socket(connection_, *context_, std::move(peer), std::move(key), message_limit, reply.label());
}

asio::awaitable<void> Session::close(bool linger) {
    connection_.stream.expires_after(kLingerDeadline);
    const error_code ec = co_await connection_.stream.end();
    if (linger && !ec) {
        // Read for a moment what the peer still sends: closing with unread bytes would reset the connection and lose
        // the answer.
        connection_.stream.expires_after(kLingerDeadline);
        std::size_t total = 0;
        while (total < kMaxLingerBytes) {
            connection_.buffer.clear();
            const auto read = co_await connection_.stream.drain_some(connection_.buffer.prepare(kFirstRead));
            if (read.failure) {
                break;
            }
            total += read.bytes;
        }
    }
    connection_.stream.close();
}

}  // namespace distilld::http
