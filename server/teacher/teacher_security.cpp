#include "server/teacher/teacher_security.hpp"

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "net/tls_context.hpp"
#include "server/http/authenticator.hpp"
#include "server/http/listen_address.hpp"
#include "server/security/key_authenticator.hpp"
#include "server/security/key_file.hpp"
#include "server/security/key_ring.hpp"
#include "server/support/log.hpp"

namespace distilld::teacher {
namespace {

namespace fs = std::filesystem;

Result<void> check_tls(const TeacherOptions& options) {
    if (options.tls_certificate.empty() != options.tls_key.empty()) {
        return invalid_input("--tls-certificate and --tls-key are needed together");
    }
    if (options.tls_certificate.empty() && !options.tls_client_ca.empty()) {
        return invalid_input("--tls-client-ca needs --tls-certificate");
    }
    return {};
}

bool is_wide(const TeacherOptions& options) {
    const auto address = http::resolve_listen(options.listen);
    return address && address->is_wide();
}

}  // namespace

Result<void> guard_server(http::ServerOptions& server, const TeacherOptions& options) {
    if (const Result<void> checked = check_tls(options); !checked) {
        return checked.error();
    }
    if (!options.tls_certificate.empty()) {
        auto tls = make_tls_server_context({options.tls_certificate, options.tls_key, options.tls_client_ca});
        if (!tls) {
            return tls.error();
        }
        server.tls = std::move(*tls);
    }
    if (options.keys.empty()) {
        if (is_wide(options)) {
            log::warn("teacher", "there is no key (--keys): anyone who reaches " + options.listen +
                                     " may use the model and load adapters");
        }
        return {};
    }
    auto ring = open_key_ring(KeyFile(options.keys));
    if (!ring) {
        return ring.error();
    }
    if (!(*ring)->protects()) {
        return invalid_input("--keys " + options.keys.string() +
                             ": there is no key yet: distilld keys add NAME --data-dir " + options.keys.string());
    }
    server.authenticator = make_key_authenticator(std::move(*ring));
    return {};
}

std::optional<FileRule> adapter_rule(const TeacherOptions& options) {
    FileRule rule;
    const auto add = [](std::vector<std::string>& places, const fs::path& place) {
        if (const auto resolved = resolved_path(fs::absolute(place))) {
            places.push_back(resolved->string());
        }
    };
    for (const std::string& root : options.roots) {
        add(rule.roots, root);
    }
    if (options.roots.empty()) {
        if (options.keys.empty() && !is_wide(options)) {
            return std::nullopt;
        }
        add(rule.roots, ".");
        if (const auto model = resolved_path(fs::absolute(options.model))) {
            rule.roots.push_back(model->parent_path().string());
        }
    }
    if (!options.keys.empty()) {
        add(rule.given, options.keys);  // read again, and written when keys are used
    }
    return rule;
}

}  // namespace distilld::teacher
