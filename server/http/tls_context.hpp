#pragma once

#include <boost/asio/ssl/context.hpp>
#include <filesystem>
#include <memory>

#include "base/error.hpp"

namespace distilld::http {

struct TlsOptions {
    std::filesystem::path certificate{};  ///< PEM, the server's first, then those that lead to a known one
    std::filesystem::path key{};          ///< PEM
    std::filesystem::path client_ca{};    ///< PEM; empty: clients show no certificate
};

/// TLS 1.2 and newer for a server. With `client_ca` a client must show a certificate of one of its authorities (mutual
/// TLS). The error names the file.
[[nodiscard]] Result<std::shared_ptr<boost::asio::ssl::context>> make_tls_server_context(const TlsOptions& options);

/// For a client: the system's authorities and those of `ca` (empty = none); `certificate` and `key` where the server
/// wants to see them.
[[nodiscard]] Result<std::shared_ptr<boost::asio::ssl::context>> make_tls_client_context(
    const std::filesystem::path& ca, const std::filesystem::path& certificate, const std::filesystem::path& key);

}  // namespace distilld::http
