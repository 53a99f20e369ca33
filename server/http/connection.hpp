#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <chrono>
#include <cstdint>
#include <string>

#include "net/byte_stream.hpp"

namespace distilld::http {

/// The socket of one session and the state that the parts of the session share about it.
struct Connection {
    /// `tls`: null = plain.
    explicit Connection(boost::asio::ip::tcp::socket socket, boost::asio::ssl::context* tls = nullptr);

    /// The time allowed for a transfer of `bytes`.
    [[nodiscard]] static std::chrono::seconds transfer_time(std::uint64_t bytes);
    /// Sets the deadline for a transfer of `bytes` from now on. A slow peer passes, a stuck one does not.
    void allow_transfer(std::uint64_t bytes);

    ByteStream stream;
    boost::beast::flat_buffer buffer;  ///< received but not used yet
    std::string remote;                ///< address of the peer
    bool idle = true;                  ///< no request is waiting for its answer
};

}  // namespace distilld::http
