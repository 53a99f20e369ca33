#include "net/host_rule.hpp"
#include "server/settings/settings_table.hpp"

namespace distilld {
namespace {

std::string wrong_host(const std::string& text) {
    const auto rule = HostRule::make({text});
    return rule ? "" : "is wrong: " + rule.error().message;
}

constexpr api::TextForm kHostForm{.check = wrong_host};

std::vector<SettingConflict> check_tls(const ServiceSettings& settings) {
    const SecuritySettings& security = settings.security;
    std::vector<SettingConflict> conflicts;
    if (security.tls_certificate.empty() && !security.tls_key.empty()) {
        conflicts.push_back({"security.tls_certificate", "is required with security.tls_key"});
    }
    if (security.tls_key.empty() && !security.tls_certificate.empty()) {
        conflicts.push_back({"security.tls_key", "is required with security.tls_certificate"});
    }
    if (security.tls_certificate.empty() && !security.tls_client_ca.empty()) {
        conflicts.push_back({"security.tls_certificate", "is required with security.tls_client_ca"});
    }
    return conflicts;
}

}  // namespace

SettingsSection security_section() {
    return {
        .name = "security",
        .help = "who may ask, and what they may do",
        .settings =
            {
                {.name = "insecure",
                 .kind = api::make_boolean(&SecuritySettings::insecure),
                 .help = "listen beyond loopback without a key: anyone who reaches the port may do everything"},
                {.name = "metrics_open",
                 .kind = api::make_boolean(&SecuritySettings::metrics_open),
                 .help = "answer GET /metrics without a key"},
                {.name = "roots",
                 .kind = make_names(&SecuritySettings::roots, {.type_name = "DIR", .use = api::PathUse::reads}),
                 .help = "folders below which specs may name files and folders; none: anywhere without keys, else the "
                         "working folder and the data folder",
                 .flag = "--root"},
                {.name = "teacher_hosts",
                 .kind = make_names(&SecuritySettings::teacher_hosts, {.form = &kHostForm, .type_name = "HOST"}),
                 .help = "hosts that teachers may have: NAME, *.NAME, ADDRESS or ADDRESS/BITS, with or without :PORT; "
                         "none: any but link-local and metadata addresses",
                 .flag = "--teacher-host",
                 .older_variable = kTeacherHostsVariable},
                {.name = "allow_eval_command",
                 .kind = api::make_boolean(&SecuritySettings::allow_eval_command),
                 .help = "accept specs with eval.command: whoever may submit a job runs any program with the rights of "
                         "the workers"},
                {.name = "tls_certificate",
                 .kind = api::make_path(&SecuritySettings::tls_certificate, api::PathUse::reads, "file", true),
                 .help = "PEM file with the service's certificate chain: HTTPS instead of HTTP"},
                {.name = "tls_key",
                 .kind = api::make_path(&SecuritySettings::tls_key, api::PathUse::reads, "file", true),
                 .help = "PEM file with its key"},
                {.name = "tls_client_ca",
                 .kind = api::make_path(&SecuritySettings::tls_client_ca, api::PathUse::reads, "file", true),
                 .help = "PEM file with authorities; clients have to show a certificate that one of them signed"},
                {.name = "audit_file_size",
                 .kind = api::make_size(&SecuritySettings::audit_file_size, {1ULL << 10, 1ULL << 50}),
                 .help = "size at which audit.jsonl is rotated"},
                {.name = "audit_files",
                 .kind = api::make_integer(&SecuritySettings::audit_files, {0, 1000}),
                 .help = "rotated files of the audit log that are kept"},
            },
        .check = check_tls};
}

}  // namespace distilld
