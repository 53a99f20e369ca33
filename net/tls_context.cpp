#include "net/tls_context.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/system/error_code.hpp>
#include <cstdint>
#include <string>

#include "base/files/files.hpp"

namespace distilld {
namespace {

namespace ssl = boost::asio::ssl;
using boost::system::error_code;

constexpr std::uint64_t kMaxAuthorityBytes = std::uint64_t{16} << 20U;

Error unreadable(const std::filesystem::path& file, const char* what, const error_code& why) {
    return invalid_input("'" + file.string() + "' cannot be read as " + what + ": " + why.message());
}

void refuse_old_versions(ssl::context& context) {
    context.set_options(ssl::context::default_workarounds | ssl::context::no_sslv2 | ssl::context::no_sslv3 |
                        ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1 | ssl::context::no_compression |
                        ssl::context::single_dh_use);
}

Result<void> load_identity(ssl::context& context, const std::filesystem::path& certificate,
                           const std::filesystem::path& key) {
    error_code failed;
    context.use_certificate_chain_file(certificate.string(), failed);
    if (failed) {
        return unreadable(certificate, "a PEM certificate", failed);
    }
    context.use_private_key_file(key.string(), ssl::context::pem, failed);
    if (failed) {
        return unreadable(key, "the PEM key of the certificate", failed);
    }
    return {};
}

}  // namespace

Result<std::shared_ptr<ssl::context>> make_tls_server_context(const TlsOptions& options) {
    auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
    refuse_old_versions(*context);
    // A key that asks for a pass phrase on a terminal would hang the service.
    context->set_password_callback([](std::size_t, ssl::context::password_purpose) { return std::string(); });
    if (const auto loaded = load_identity(*context, options.certificate, options.key); !loaded) {
        return loaded.error();
    }
    if (!options.client_ca.empty()) {
        error_code failed;
        context->load_verify_file(options.client_ca.string(), failed);
        if (failed) {
            return unreadable(options.client_ca, "PEM certificates", failed);
        }
        context->set_verify_mode(ssl::verify_peer | ssl::verify_fail_if_no_peer_cert);
        // Sessions of clients that showed a certificate are resumed only in the same context.
        static constexpr unsigned char kSession[] = "distilld";
        ::SSL_CTX_set_session_id_context(context->native_handle(), kSession, sizeof kSession - 1);
    }
    return context;
}

Result<std::shared_ptr<ssl::context>> make_tls_client_context(const TlsClientOptions& options) {
    auto context = std::make_shared<ssl::context>(ssl::context::tls_client);
    refuse_old_versions(*context);
    error_code failed;
    context->set_default_verify_paths(failed);
    if (!options.ca.empty()) {
        const Result<std::string> authorities = read_text_file(options.ca, kMaxAuthorityBytes);
        if (!authorities) {
            return invalid_at("'" + options.ca.string() + "' cannot be read as PEM certificates", authorities.error());
        }
        context->add_certificate_authority(boost::asio::buffer(*authorities), failed);
        if (failed) {
            return unreadable(options.ca, "PEM certificates", failed);
        }
    }
    if (!options.certificate.empty()) {
        if (const auto loaded = load_identity(*context, options.certificate, options.key); !loaded) {
            return loaded.error();
        }
    }
    context->set_verify_mode(ssl::verify_peer);
    return context;
}

}  // namespace distilld
