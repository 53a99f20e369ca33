#include "server/http/byte_stream.hpp"

#include "pipeline/async/tuple.hpp"

namespace distilld::http {

namespace asio = boost::asio;
using boost::system::error_code;

asio::awaitable<error_code> ByteStream::handshake(Role role) {
    if (!tls_) {
        co_return error_code();
    }
    const auto shaken = co_await tls_->async_handshake(role, kTuple);
    co_return std::get<0>(shaken);
}

asio::awaitable<error_code> ByteStream::end() {
    if (tls_) {
        // Our close_notify goes out at once; the peer's is waited for as long as the deadline says, and not needed.
        const auto closed = co_await tls_->async_shutdown(kTuple);
        static_cast<void>(closed);
    }
    error_code failed;
    tcp_.socket().shutdown(Socket::shutdown_send, failed);
    co_return failed;
}

}  // namespace distilld::http
