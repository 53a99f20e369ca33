#include "server/http/peer_watch.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/ip/tcp.hpp>
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

/// Its end, wherever in what it has sent that stands.
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
    // Over TLS a peer that leaves says so before it closes: there is something to read, and its end stands behind that.
    while (connection.stream.is_secure() && !peer_sends_no_more(socket.native_handle())) {
        const auto next_look = std::chrono::steady_clock::now() + kLookPause;
        co_await never.wait(next_look);
    }
    if (!connection.stream.is_secure()) {
        co_await never.wait();
    }
}

}  // namespace distilld::http
