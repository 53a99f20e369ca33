#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <string>

#include "base/error.hpp"

namespace distilld::http {

/// The address that a server listens on.
struct ListenAddress {
    std::string host;  ///< as written, without brackets
    boost::asio::ip::tcp::endpoint endpoint;

    /// Whether other machines can reach it.
    [[nodiscard]] bool is_wide() const { return !endpoint.address().is_loopback(); }
};

/// Reads ADDRESS:PORT or [v6]:PORT. A name is looked up, which blocks. The invalid_input error names the text.
[[nodiscard]] Result<ListenAddress> resolve_listen(const std::string& listen);

}  // namespace distilld::http
