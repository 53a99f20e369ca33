#pragma once

#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/system/error_code.hpp>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

namespace distilld::net {

/// How the handshake of a client ended.
struct HandshakeResult {
    boost::system::error_code failure{};
    std::string why{};  ///< in words; of a certificate that was refused: what is wrong with it
};

/// The bytes that go to and come from a peer, over TLS or not, with the deadline of what is under way. What reads and
/// writes HTTP need not know which. Model of Asio's AsyncReadStream and AsyncWriteStream; one executor.
class ByteStream {
  public:
    using executor_type = boost::beast::tcp_stream::executor_type;
    using Socket = boost::asio::ip::tcp::socket;
    using Role = boost::asio::ssl::stream_base::handshake_type;

    /// `tls`: none = plain; else it must outlive the stream, and handshake() comes before anything else.
    explicit ByteStream(Socket socket, boost::asio::ssl::context* tls = nullptr) : tcp_(std::move(socket)) {
        if (tls != nullptr) {
            tls_ = std::make_unique<Tls>(tcp_, *tls);
        }
    }
    ByteStream(const ByteStream&) = delete;
    ByteStream& operator=(const ByteStream&) = delete;
    ~ByteStream() = default;

    [[nodiscard]] executor_type get_executor() noexcept { return tcp_.get_executor(); }
    [[nodiscard]] bool is_secure() const noexcept { return tls_ != nullptr; }
    [[nodiscard]] Socket& socket() noexcept { return tcp_.socket(); }
    /// Whether bytes of the peer wait that nobody has read; its end is none. For a moment when nothing reads.
    [[nodiscard]] bool has_unread() noexcept;
    /// Whether the peer has neither sent more, be it TLS's own, nor left. For the same moment.
    [[nodiscard]] bool is_quiet() noexcept;

    void expires_after(std::chrono::steady_clock::duration time) { tcp_.expires_after(time); }
    void expires_never() { tcp_.expires_never(); }
    void close() { tcp_.close(); }

    /// Nothing to do where there is no TLS.
    boost::asio::awaitable<boost::system::error_code> handshake(Role role);
    /// As a client: tells the peer the name of `host`, and checks that its certificate is for that host. The context
    /// verifies peers. TLS only.
    boost::asio::awaitable<HandshakeResult> handshake_with(std::string host);
    /// Says that no more will be sent, so that the peer can tell the end from a cut. An error: the peer has left.
    boost::asio::awaitable<boost::system::error_code> end();

    template <class Buffers, class Token>
    auto async_read_some(const Buffers& buffers, Token&& token) {
        return boost::asio::async_initiate<Token, void(boost::system::error_code, std::size_t)>(
            [this](auto handler, const Buffers& into) {
                if (tls_) {
                    tls_->async_read_some(into, std::move(handler));
                } else {
                    tcp_.async_read_some(into, std::move(handler));
                }
            },
            token, buffers);
    }

    template <class Buffers, class Token>
    auto async_write_some(const Buffers& buffers, Token&& token) {
        return boost::asio::async_initiate<Token, void(boost::system::error_code, std::size_t)>(
            [this](auto handler, const Buffers& from) {
                if (tls_) {
                    tls_->async_write_some(from, std::move(handler));
                } else {
                    tcp_.async_write_some(from, std::move(handler));
                }
            },
            token, buffers);
    }

    /// Bytes as they come, TLS or not: to be thrown away.
    template <class Buffers, class Token>
    auto async_drain_some(const Buffers& buffers, Token&& token) {
        return tcp_.async_read_some(buffers, std::forward<Token>(token));
    }

  private:
    using Tls = boost::asio::ssl::stream<boost::beast::tcp_stream&>;

    boost::beast::tcp_stream tcp_;
    std::unique_ptr<Tls> tls_;
};

}  // namespace distilld::net
