#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream_base.hpp>
#include <boost/system/error_code.hpp>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

namespace distilld {

/// How the handshake of a client ended.
struct HandshakeResult {
    boost::system::error_code failure{};
    std::string why{};  ///< in words; for a refused certificate: what is wrong with it
};

/// The byte stream to and from a peer, over TLS or not, with a deadline for the current operation
/// (beast::error::timeout, and the socket is closed). Code that reads and writes HTTP need not know which. Reading and
/// writing are coroutines, so their code is compiled once, not per caller. One executor; one read and one write at a
/// time. Cancellation is an error like others (operation_aborted).
class ByteStream {
  public:
    using Socket = boost::asio::ip::tcp::socket;
    using Role = boost::asio::ssl::stream_base::handshake_type;
    struct Transfer {
        boost::system::error_code failure;
        std::size_t bytes = 0;
    };

    /// `tls`: null = plain; otherwise it must outlive the stream, and handshake() must come first.
    explicit ByteStream(Socket socket, boost::asio::ssl::context* tls = nullptr);
    ByteStream(ByteStream&& other) noexcept;
    ByteStream& operator=(ByteStream&&) = delete;
    ~ByteStream();

    [[nodiscard]] bool is_secure() const noexcept;
    [[nodiscard]] Socket& socket() noexcept;
    /// Whether unread bytes of the peer wait; its end does not count. Only while nothing reads.
    [[nodiscard]] bool has_unread() noexcept;
    /// Whether the peer has neither sent more, including TLS records, nor left. Only while nothing reads.
    [[nodiscard]] bool is_quiet() noexcept;

    void expires_after(std::chrono::steady_clock::duration time);
    void expires_never();
    void close();

    /// Does nothing without TLS.
    boost::asio::awaitable<boost::system::error_code> handshake(Role role);
    /// As a client: tells the peer the name of `host`, and checks that its certificate is for that host. The context
    /// verifies peers. TLS only.
    boost::asio::awaitable<HandshakeResult> handshake_with(std::string host);
    /// Tells the peer that no more will be sent, so it can tell the end from a cut. An error: the peer has left.
    boost::asio::awaitable<boost::system::error_code> end();

    /// The bytes that have come; at least one unless it fails.
    boost::asio::awaitable<Transfer> read_some(boost::asio::mutable_buffer into);
    /// Fills the buffer.
    boost::asio::awaitable<Transfer> read(boost::asio::mutable_buffer into);
    /// All bytes of the first buffer, then all of the second; they go out together.
    boost::asio::awaitable<Transfer> write(boost::asio::const_buffer first, boost::asio::const_buffer second = {});
    /// Reads and discards bytes, TLS or not.
    boost::asio::awaitable<Transfer> drain_some(boost::asio::mutable_buffer into);

  private:
    friend class WebSocketLayers;
    struct Streams;
    std::unique_ptr<Streams> streams_;
};

}  // namespace distilld
