#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <chrono>
#include <cstdint>
#include <string>

namespace distilld::http {

/// The socket of one session and what the parts of the session share about it.
struct Connection {
    explicit Connection(boost::asio::ip::tcp::socket socket);

    /// How long `bytes` may take.
    [[nodiscard]] static std::chrono::seconds transfer_time(std::uint64_t bytes);
    /// For what follows: as long as `bytes` may take. A slow peer is fine, a stuck one is not.
    void allow_transfer(std::uint64_t bytes);

    boost::beast::tcp_stream stream;
    boost::beast::flat_buffer buffer;  ///< received and not used yet
    std::string remote;                ///< address of the peer
    bool idle = true;                  ///< no request has been read that waits for its answer
};

}  // namespace distilld::http
