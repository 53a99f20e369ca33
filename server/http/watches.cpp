#include "server/http/watches.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <cerrno>
#include <chrono>

#include "pipeline/async/condition.hpp"
#include "pipeline/async/tuple.hpp"

namespace distilld::http {
namespace {

namespace asio = boost::asio;

constexpr std::chrono::milliseconds kLookPause{500};

bool peer_has_closed(int socket) {
    char byte = 0;
    const ssize_t got = ::recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

/// Whether the peer has closed its end, even behind unread bytes.
bool peer_sends_no_more(int socket) {
    pollfd state{socket, POLLRDHUP, 0};
    return ::poll(&state, 1, 0) > 0;
}

}  // namespace

asio::awaitable<void> until_peer_leaves(Connection& connection) {
    auto& socket = connection.stream.socket();
    if (connection.buffer.size() == 0) {
        const auto waited = co_await socket.async_wait(asio::ip::tcp::socket::wait_read, kTuple);
        if (std::get<0>(waited) || peer_has_closed(socket.native_handle())) {
            co_return;
        }
    }
    Condition never(co_await asio::this_coro::executor);
    // Over TLS a leaving peer sends close_notify first, so there is something to read and the end comes behind it.
    while (connection.stream.is_secure() && !peer_sends_no_more(socket.native_handle())) {
        const auto next_look = std::chrono::steady_clock::now() + kLookPause;
        co_await never.wait(next_look);
    }
    if (!connection.stream.is_secure()) {
        co_await never.wait();
    }
}

asio::awaitable<void> until_revoked(std::shared_ptr<Authenticator> authenticator, http::Caller caller) {
    asio::steady_timer pause(co_await asio::this_coro::executor);
    while (!authenticator->revocation(caller)) {
        pause.expires_after(kLookPause);
        co_await pause.async_wait(kTuple);
    }
}

}  // namespace distilld::http
