#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <string>

#include "base/error.hpp"

namespace distilld::http {

/// Where a server listens.
struct ListenAddress {
    std::string host;  ///< as it was written, without brackets
    boost::asio::ip::tcp::endpoint endpoint;

    /// Whether others than this machine reach it.
    [[nodiscard]] bool is_wide() const { return !endpoint.address().is_loopback(); }
};

/// Reads ADDRESS:PORT or [v6]:PORT; a name is looked up, which blocks. invalid_input names the text.
[[nodiscard]] Result<ListenAddress> resolve_listen(const std::string& listen);

}  // namespace distilld::http
