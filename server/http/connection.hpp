#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <chrono>
#include <cstdint>
#include <string>

#include "net/byte_stream.hpp"

namespace distilld::http {

/// The socket of one session and what the parts of the session share about it.
struct Connection {
    /// `tls`: none = plain.
    explicit Connection(boost::asio::ip::tcp::socket socket, boost::asio::ssl::context* tls = nullptr);

    /// How long `bytes` may take.
    [[nodiscard]] static std::chrono::seconds transfer_time(std::uint64_t bytes);
    /// For what follows: as long as `bytes` may take. A slow peer is fine, a stuck one is not.
    void allow_transfer(std::uint64_t bytes);

    net::ByteStream stream;
    boost::beast::flat_buffer buffer;  ///< received and not used yet
    std::string remote;                ///< address of the peer
    bool idle = true;                  ///< no request has been read that waits for its answer
};

}  // namespace distilld::http
