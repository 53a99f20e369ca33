#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.hpp"

namespace distilld {

/// Where a teacher answers.
struct EndpointUrl {
    bool tls = false;
    std::string host;  ///< name or address; an IPv6 address without brackets
    std::uint16_t port = 0;
    std::string host_header;  ///< value of the Host header
    std::string path;         ///< absolute path of the request, percent-encoded
    std::string query;        ///< with its '?', or empty
    std::string name;         ///< for messages: scheme, host, port and path

    [[nodiscard]] std::string target() const { return path + query; }
    /// The name of another page of the same server in messages: without its query, which may hold a key.
    [[nodiscard]] std::string page(std::string_view other_target) const;
};

/// Parses an http or https URL. `default_path` (absolute, percent-encoded) replaces a missing path or "/". The error
/// names the URL.
[[nodiscard]] Result<EndpointUrl> parse_endpoint_url(const std::string& url, const std::string& default_path);

}  // namespace distilld
