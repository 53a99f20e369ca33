#include "net/byte_stream.hpp"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/sslerr.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <boost/asio/error.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ssl/error.hpp>
#include <cerrno>

#include "pipeline/async/tuple.hpp"

namespace distilld::net {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

/// What OpenSSL is to find in the certificate. False: no certificate can be for such a host.
bool expect_host(SSL* tls, const std::string& host) {
    error_code not_an_address;
    asio::ip::make_address(host, not_an_address);
    if (!not_an_address) {
        return ::X509_VERIFY_PARAM_set1_ip_asc(::SSL_get0_param(tls), host.c_str()) == 1;
    }
    return ::SSL_set_tlsext_host_name(tls, host.c_str()) == 1 && ::SSL_set1_host(tls, host.c_str()) == 1;
}

/// What came in answer to a greeting of TLS is something else.
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

/// What recv() says of the next byte, which stays: 1, 0 at the end, -1 for nothing yet or an error.
ssize_t look_at(int socket) {
    char byte = 0;
    ssize_t seen = 0;
    do {
        seen = ::recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    } while (seen < 0 && errno == EINTR);
    return seen;
}

}  // namespace

bool ByteStream::has_unread() noexcept {
    if (!tls_) {
        return look_at(tcp_.socket().native_handle()) > 0;
    }
    char byte = 0;
    return ::SSL_peek(tls_->native_handle(), &byte, 1) > 0;
}

bool ByteStream::is_quiet() noexcept {
    const bool waiting = look_at(tcp_.socket().native_handle()) < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    return waiting && !has_unread();
}

asio::awaitable<error_code> ByteStream::handshake(Role role) {
    if (!tls_) {
        co_return error_code();
    }
    const auto shaken = co_await tls_->async_handshake(role, kTuple);
    co_return std::get<0>(shaken);
}

asio::awaitable<HandshakeResult> ByteStream::handshake_with(std::string host) {
    HandshakeResult result;
    if (!expect_host(tls_->native_handle(), host)) {
        result.failure = error_code(ERR_R_PASSED_INVALID_ARGUMENT, asio::error::get_ssl_category());
        result.why = "no certificate can be for " + host;
        co_return result;
    }
    const auto shaken = co_await tls_->async_handshake(asio::ssl::stream_base::client, kTuple);
    result.failure = std::get<0>(shaken);
    if (result.failure) {
        result.why = reason_of(result.failure, ::SSL_get_verify_result(tls_->native_handle()), host);
    }
    co_return result;
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

}  // namespace distilld::net
