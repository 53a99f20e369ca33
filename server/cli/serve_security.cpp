#include "server/cli/serve_security.hpp"

#include <cstdlib>
#include <cstring>
#include <optional>
#include <system_error>
#include <utility>

#include "base/join.hpp"
#include "net/host_rule.hpp"
#include "net/tls_context.hpp"
#include "server/http/authenticator.hpp"
#include "server/http/listen_address.hpp"
#include "server/security/host_check.hpp"
#include "server/security/key_authenticator.hpp"
#include "server/security/path_rule.hpp"
#include "server/support/log.hpp"

namespace distilld::cli {
namespace {

namespace fs = std::filesystem;

/// Removes the variable from our environment, and overwrites its bytes, which the kernel shows in /proc/PID/environ.
std::optional<std::string> taken_from_environment(const char* name) {
    char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') {
        return std::nullopt;
    }
    std::string taken(value);
    ::unsetenv(name);
    const std::size_t before = std::strlen(name) + 1;  // "NAME="
    ::explicit_bzero(value - before, before + taken.size());
    return taken;
}

Result<void> check_listen(const SecuritySettings& settings, const std::string& listen, const fs::path& data_dir,
                          const KeyRing& keys) {
    const auto address = http::resolve_listen(listen);
    if (!address) {
        return address.error();
    }
    if (!address->is_wide() || keys.protects()) {
        return {};
    }
    if (!settings.insecure) {
        return invalid_input(
            "--listen " + listen +
            " is reachable from other machines, and there is no key: make one (distilld keys add NAME "
            "--role admin --data-dir " +
            data_dir.string() + ", or " + kAdminKeyVariable +
            " in the environment), or use --insecure to let anyone who reaches the port do everything");
    }
    log::warn("serve", "there is no key: anyone who reaches " + listen + " may do everything (--insecure)");
    return {};
}

Result<std::vector<fs::path>> checked_roots(const std::vector<std::string>& roots) {
    std::vector<fs::path> folders;
    for (const std::string& root : roots) {
        std::error_code failed;
        if (!fs::is_directory(root, failed)) {
            return invalid_input("security.roots: " + root + " is not a folder");
        }
        folders.emplace_back(root);
    }
    return folders;
}

std::function<api::SpecViolations(const JobSpec&)> make_spec_policy(PathRuleOptions paths, HostRule hosts,
                                                                    bool allows_programs) {
    return [paths = PathRule(std::move(paths)), hosts = std::move(hosts), allows_programs](const JobSpec& spec) {
        auto found = paths.check(spec);
        for (auto& refused : check_hosts(spec, hosts).violations) {
            found.violations.push_back(std::move(refused));
        }
        if (!allows_programs && !spec.eval.command.empty()) {
            found.violations.push_back(
                {"/eval/command", "command_not_allowed",
                 "this service runs no programs of specs: leave it out, use distilld run, or ask its operator for the "
                 "setting security.allow_eval_command"});
        }
        return found;
    };
}

}  // namespace

Result<ServeSecurity> open_security(const SecuritySettings& settings, const std::string& listen,
                                    const fs::path& data_dir) {
    auto hosts = HostRule::make(settings.teacher_hosts);
    if (!hosts) {
        return hosts.error();
    }
    if (!hosts->patterns().empty()) {
        ::setenv(kTeacherHostsVariable, joined(hosts->patterns(), ",").c_str(), 1);
    }
    KeyRingOptions ring;
    ring.admin_secret = taken_from_environment(kAdminKeyVariable);
    auto keys = open_key_ring(KeyFile(data_dir), ring);
    if (!keys) {
        return keys.error();
    }
    if (const auto good = check_listen(settings, listen, data_dir, **keys); !good) {
        return good.error();
    }
    auto roots = checked_roots(settings.roots);
    if (!roots) {
        return roots.error();
    }
    ServeSecurity security;
    if (!settings.tls_certificate.empty()) {
        auto tls = make_tls_server_context({settings.tls_certificate, settings.tls_key, settings.tls_client_ca});
        if (!tls) {
            return tls.error();
        }
        security.tls = std::move(*tls);
    }
    auto audit = open_audit_log(data_dir, {settings.audit_file_size, settings.audit_files});
    if (!audit) {
        return audit.error();
    }
    PathRuleOptions paths;
    paths.roots = std::move(*roots);
    paths.needed = [keys = *keys] { return keys->protects(); };
    paths.otherwise = {fs::current_path(), data_dir};
    paths.data_dir = data_dir;
    paths.shared = {data_dir / kOutputsFolder};
    security.keys = std::move(*keys);
    security.audit = std::move(*audit);
    security.policy = make_spec_policy(paths, *hosts, settings.allow_eval_command);
    const fs::path home = resolved_path(fs::absolute(data_dir)).value_or(data_dir);
    paths.given = {data_dir / kFilesFolder, data_dir / kOutputsFolder, home / kFilesFolder, home / kOutputsFolder};
    security.files = [rule = PathRule(paths)](const JobSpec& spec) { return rule.rule_of(spec); };
    security.start_policy = make_spec_policy(std::move(paths), *std::move(hosts), settings.allow_eval_command);
    return security;
}

void guard_server(http::ServerOptions& server, const ServeSecurity& security, const SecuritySettings& settings) {
    server.tls = security.tls;
    server.authenticator = make_key_authenticator(security.keys, AuthenticatorOptions{settings.metrics_open});
    server.auditor = [audit = security.audit](const http::AnswerRecord& answer) {
        audit->write({answer.caller, answer.remote, answer.method, answer.path, answer.status, answer.subject,
                      answer.request_id});
    };
}

}  // namespace distilld::cli
