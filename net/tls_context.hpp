#pragma once

#include <boost/asio/ssl/context.hpp>
#include <filesystem>
#include <memory>

#include "base/error.hpp"

namespace distilld {

struct TlsOptions {
    std::filesystem::path certificate{};  ///< PEM: the server's first, then its chain
    std::filesystem::path key{};          ///< PEM
    std::filesystem::path client_ca{};    ///< PEM; empty: clients show no certificate
};

/// TLS 1.2 and newer for a server. With `client_ca`, a client must show a certificate of one of its authorities (mutual
/// TLS). The error names the file.
[[nodiscard]] Result<std::shared_ptr<boost::asio::ssl::context>> make_tls_server_context(const TlsOptions& options);

struct TlsClientOptions {
    std::filesystem::path ca{};           ///< PEM, authorities besides the system's; empty = none
    std::filesystem::path certificate{};  ///< PEM, for a server that requests one; empty = none
    std::filesystem::path key{};          ///< PEM, of the certificate
};

/// TLS 1.2 and newer for a client, which verifies the server. The error names the file.
[[nodiscard]] Result<std::shared_ptr<boost::asio::ssl::context>> make_tls_client_context(
    const TlsClientOptions& options = {});

}  // namespace distilld
