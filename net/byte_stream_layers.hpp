#pragma once

#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <optional>
#include <utility>

#include "net/byte_stream.hpp"

namespace distilld {

/// What a ByteStream hides. Only for what speaks over one.
struct ByteStream::Streams {
    Streams(Socket socket, boost::asio::ssl::context* context) : tcp(std::move(socket)) {
        if (context != nullptr) {
            tls.emplace(tcp, *context);
        }
    }

    boost::beast::tcp_stream tcp;
    std::optional<boost::asio::ssl::stream<boost::beast::tcp_stream&>> tls;
};

}  // namespace distilld
