#include "net/byte_stream.hpp"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/sslerr.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <array>
#include <boost/asio/error.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <tuple>
#include <utility>

#include "net/byte_stream_layers.hpp"
#include "pipeline/async/tuple.hpp"

namespace distilld {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

/// Sets the host that OpenSSL must find in the certificate. False: no certificate can be for such a host.
bool expect_host(SSL* tls, const std::string& host) {
    error_code not_an_address;
    asio::ip::make_address(host, not_an_address);
    if (!not_an_address) {
        return ::X509_VERIFY_PARAM_set1_ip_asc(::SSL_get0_param(tls), host.c_str()) == 1;
    }
    return ::SSL_set_tlsext_host_name(tls, host.c_str()) == 1 && ::SSL_set1_host(tls, host.c_str()) == 1;
}

/// The answer to the TLS greeting was something else.
bool speaks_no_tls(const error_code& failure) {
    return failure.category() == asio::error::get_ssl_category() &&
           (ERR_GET_REASON(static_cast<unsigned long>(failure.value())) == SSL_R_WRONG_VERSION_NUMBER ||
            ERR_GET_REASON(static_cast<unsigned long>(failure.value())) == SSL_R_HTTP_REQUEST);
}

std::string reason_of(error_code failed, long verdict, const std::string& host) {
    if (verdict == X509_V_ERR_HOSTNAME_MISMATCH || verdict == X509_V_ERR_IP_ADDRESS_MISMATCH) {
        return "the certificate is not for " + host;
    }
    if (speaks_no_tls(failed)) {
        return "the server does not speak TLS; use http://";
    }
    return verdict == X509_V_OK ? failed.message() : ::X509_verify_cert_error_string(verdict);
}

/// What recv() returns for the next byte, which stays: 1, 0 at the end, -1 for nothing yet or an error.
ssize_t look_at(int socket) {
    char byte = 0;
    ssize_t seen = 0;
    do {
        seen = ::recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    } while (seen < 0 && errno == EINTR);
    return seen;
}

}  // namespace

ByteStream::ByteStream(Socket socket, asio::ssl::context* tls)
    : streams_(std::make_unique<Streams>(std::move(socket), tls)) {}

ByteStream::ByteStream(ByteStream&& other) noexcept = default;

ByteStream::~ByteStream() = default;

bool ByteStream::is_secure() const noexcept {
    return streams_->tls.has_value();
}

ByteStream::Socket& ByteStream::socket() noexcept {
    return streams_->tcp.socket();
}

void ByteStream::expires_after(std::chrono::steady_clock::duration time) {
    streams_->tcp.expires_after(time);
}

void ByteStream::expires_never() {
    streams_->tcp.expires_never();
}

void ByteStream::close() {
    streams_->tcp.close();
}

bool ByteStream::has_unread() noexcept {
    if (!is_secure()) {
        return look_at(socket().native_handle()) > 0;
    }
    char byte = 0;
    return ::SSL_peek(streams_->tls->native_handle(), &byte, 1) > 0;
}

bool ByteStream::is_quiet() noexcept {
    const bool waiting = look_at(socket().native_handle()) < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    return waiting && !has_unread();
}

asio::awaitable<error_code> ByteStream::handshake(Role role) {
    if (!is_secure()) {
        co_return error_code();
    }
    const auto shaken = co_await streams_->tls->async_handshake(role, kTuple);
    co_return std::get<0>(shaken);
}

asio::awaitable<HandshakeResult> ByteStream::handshake_with(std::string host) {
    HandshakeResult result;
    ::SSL* tls = streams_->tls->native_handle();
    if (!expect_host(tls, host)) {
        result.failure = error_code(ERR_R_PASSED_INVALID_ARGUMENT, asio::error::get_ssl_category());
        result.why = "no certificate can be for " + host;
        co_return result;
    }
    result.failure = co_await handshake(asio::ssl::stream_base::client);
    if (result.failure) {
        result.why = reason_of(result.failure, ::SSL_get_verify_result(tls), host);
    }
    co_return result;
}

asio::awaitable<error_code> ByteStream::end() {
    if (is_secure()) {
        // Our close_notify is sent at once; the peer's is optional and awaited until the deadline.
        const auto closed = co_await streams_->tls->async_shutdown(kTuple);
        static_cast<void>(closed);
    }
    error_code failed;
    socket().shutdown(Socket::shutdown_send, failed);
    co_return failed;
}

asio::awaitable<ByteStream::Transfer> ByteStream::read_some(asio::mutable_buffer into) {
    if (!is_secure()) {
        co_return co_await drain_some(into);
    }
    const auto read = co_await streams_->tls->async_read_some(into, kTuple);
    co_return std::make_from_tuple<Transfer>(read);
}

asio::awaitable<ByteStream::Transfer> ByteStream::drain_some(asio::mutable_buffer into) {
    const auto read = co_await streams_->tcp.async_read_some(into, kTuple);
    co_return std::make_from_tuple<Transfer>(read);
}

asio::awaitable<ByteStream::Transfer> ByteStream::read(asio::mutable_buffer into) {
    if (is_secure()) {
        const auto read = co_await asio::async_read(*streams_->tls, into, kTuple);
        co_return std::make_from_tuple<Transfer>(read);
    }
    const auto read = co_await asio::async_read(streams_->tcp, into, kTuple);
    co_return std::make_from_tuple<Transfer>(read);
}

asio::awaitable<ByteStream::Transfer> ByteStream::write(asio::const_buffer first, asio::const_buffer second) {
    const std::array<asio::const_buffer, 2> all{first, second};
    if (is_secure()) {
        const auto written = co_await asio::async_write(*streams_->tls, all, kTuple);
        co_return std::make_from_tuple<Transfer>(written);
    }
    const auto written = co_await asio::async_write(streams_->tcp, all, kTuple);
    co_return std::make_from_tuple<Transfer>(written);
}

}  // namespace distilld
