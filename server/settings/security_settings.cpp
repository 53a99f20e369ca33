#include <boost/json/array.hpp>

#include "pipeline/core/host_rule.hpp"
#include "server/settings/settings_table.hpp"

namespace distilld {
namespace {

/// Texts that are folders: relative ones start where the setting stands.
class FoldersKind final : public SettingKind {
  public:
    explicit FoldersKind(SettingKindPtr texts) : texts_(std::move(texts)) {}

    std::optional<std::string> read(const boost::json::value& value, const std::filesystem::path& base,
                                    ServiceSettings& settings) const override {
        boost::json::value absolute = value;
        if (auto* list = absolute.if_array()) {
            for (auto& entry : *list) {
                if (auto* text = entry.if_string()) {
                    *text = (base / std::string(*text)).lexically_normal().string();
                }
            }
        }
        return texts_->read(absolute, base, settings);
    }
    [[nodiscard]] boost::json::value value_of(const std::vector<std::string>& words) const override {
        return texts_->value_of(words);
    }
    [[nodiscard]] boost::json::value write(const ServiceSettings& settings) const override {
        return texts_->write(settings);
    }
    [[nodiscard]] std::string values() const override { return texts_->values(); }
    [[nodiscard]] std::string type_name() const override { return texts_->type_name(); }
    [[nodiscard]] SettingShape shape() const override { return texts_->shape(); }

  private:
    SettingKindPtr texts_;
};

std::optional<std::string> check_host(const std::string& text) {
    const auto rule = HostRule::make({text});
    return rule ? std::nullopt : std::optional<std::string>("is wrong: " + rule.error().message);
}

std::vector<SettingConflict> check_tls(const ServiceSettings& settings) {
    const SecuritySettings& security = settings.security;
    std::vector<SettingConflict> conflicts;
    if (security.tls_certificate.empty() && !security.tls_key.empty()) {
        conflicts.push_back({"security.tls_certificate", "is needed beside security.tls_key"});
    }
    if (security.tls_key.empty() && !security.tls_certificate.empty()) {
        conflicts.push_back({"security.tls_key", "is needed beside security.tls_certificate"});
    }
    if (security.tls_certificate.empty() && !security.tls_client_ca.empty()) {
        conflicts.push_back({"security.tls_certificate", "is needed beside security.tls_client_ca"});
    }
    return conflicts;
}

}  // namespace

SettingsSection security_section() {
    return {
        .name = "security",
        .help = "who may ask, and what for",
        .settings =
            {
                {.name = "insecure",
                 .kind = make_boolean_setting(&ServiceSettings::security, &SecuritySettings::insecure),
                 .help = "listen beyond loopback without a key: whoever reaches the port may do everything",
                 .flag = "--insecure"},
                {.name = "metrics_open",
                 .kind = make_boolean_setting(&ServiceSettings::security, &SecuritySettings::metrics_open),
                 .help = "answer GET /metrics without a key",
                 .flag = "--metrics-open"},
                {.name = "roots",
                 .kind = std::make_shared<FoldersKind>(
                     make_texts_setting(&ServiceSettings::security, &SecuritySettings::roots, {.type_name = "DIR"})),
                 .help = "folders below which specs may name files and folders; none: anywhere without keys, else the "
                         "working folder and the data folder",
                 .flag = "--root"},
                {.name = "teacher_hosts",
                 .kind = make_texts_setting(&ServiceSettings::security, &SecuritySettings::teacher_hosts,
                                            {.check = check_host, .type_name = "HOST"}),
                 .help = "hosts that teachers may have: NAME, *.NAME, ADDRESS or ADDRESS/BITS, with or without :PORT; "
                         "none: any but link-local and metadata addresses",
                 .flag = "--teacher-host",
                 .older_variable = kTeacherHostsVariable},
                {.name = "tls_certificate",
                 .kind = make_file_setting(&ServiceSettings::security, &SecuritySettings::tls_certificate),
                 .help = "PEM file with the service's certificate chain: HTTPS in place of HTTP",
                 .flag = "--tls-certificate"},
                {.name = "tls_key",
                 .kind = make_file_setting(&ServiceSettings::security, &SecuritySettings::tls_key),
                 .help = "PEM file with its key",
                 .flag = "--tls-key"},
                {.name = "tls_client_ca",
                 .kind = make_file_setting(&ServiceSettings::security, &SecuritySettings::tls_client_ca),
                 .help = "PEM file with authorities; clients have to show a certificate that one of them signed",
                 .flag = "--tls-client-ca"},
                {.name = "audit_file_size",
                 .kind = make_size_setting(&ServiceSettings::security, &SecuritySettings::audit_file_size, 1ULL << 10,
                                           1ULL << 50),
                 .help = "size at which audit.jsonl is rotated",
                 .flag = "--audit-file-size"},
                {.name = "audit_files",
                 .kind = make_integer_setting(&ServiceSettings::security, &SecuritySettings::audit_files, 0, 1000),
                 .help = "rotated files of the audit log that are kept",
                 .flag = "--audit-files"},
            },
        .check = check_tls};
}

}  // namespace distilld
