#include "server/http/peer_watch.hpp"

#include <sys/socket.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/this_coro.hpp>
#include <cerrno>

#include "pipeline/async/condition.hpp"
#include "pipeline/async/tuple.hpp"

namespace distilld::http {
namespace {

namespace asio = boost::asio;

bool peer_has_closed(int socket) {
    char byte = 0;
    const ssize_t got = ::recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
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
    co_await never.wait();
}

}  // namespace distilld::http
