#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/settings/setting_kinds.hpp"

/// The settings of `distilld serve`, each described once. The reader of the file of `--config`, the environment, the
/// flags, `--print-config` and docs/settings.md go by this table. A new setting is a member of service_settings.hpp and
/// a row in its section's file; a new section is a struct there, a file with its rows and a line in settings_table.cpp.
namespace distilld {

struct Setting {
    std::string_view name;                 ///< "slots", in the file under its section
    SettingKindPtr kind;                   ///< member, values, range; the default is that of the member
    std::string_view help;                 ///< one line
    std::string_view flag;                 ///< "--slots"; empty = none
    std::string_view required = {};        ///< what has to be given; empty = may be left out
    std::string_view older_variable = {};  ///< environment variable that is read too, where the own one is not set
    bool secret = false;                   ///< never printed
};

/// Something that is wrong between settings which are each good for themselves.
struct SettingConflict {
    std::string name;  ///< "security.tls_key"
    std::string detail;
};

struct SettingsSection {
    std::string_view name;
    std::string_view help;  ///< one line
    std::vector<Setting> settings;
    /// Asked once all values are good; may be null.
    std::vector<SettingConflict> (*check)(const ServiceSettings& settings) = nullptr;
};

struct SettingsTable {
    std::vector<SettingsSection> sections;

    /// Null for a section that there is not.
    [[nodiscard]] const SettingsSection* section(std::string_view name) const;
    /// Of a "section.name"; null for one that there is not.
    [[nodiscard]] const Setting* setting(std::string_view dotted) const;
};

/// "jobs.slots"
[[nodiscard]] std::string dotted_name(const SettingsSection& section, const Setting& setting);
/// "DISTILLD_JOBS_SLOTS"
[[nodiscard]] std::string variable_name(const SettingsSection& section, const Setting& setting);
/// "--slots N, DISTILLD_JOBS_SLOTS, or slots in [jobs] of the file": how a setting is given.
[[nodiscard]] std::string ways_to_give(const SettingsSection& section, const Setting& setting);

[[nodiscard]] const SettingsTable& settings_table();

// The sections, each in a file of its own.
[[nodiscard]] SettingsSection server_section();
[[nodiscard]] SettingsSection jobs_section();
[[nodiscard]] SettingsSection log_section();
[[nodiscard]] SettingsSection teacher_section();
[[nodiscard]] SettingsSection security_section();
[[nodiscard]] SettingsSection webhooks_section();

}  // namespace distilld
