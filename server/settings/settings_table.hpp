#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/kinds/field_kinds.hpp"
#include "server/settings/service_settings.hpp"

/// The settings of `distilld serve`, each described once. The reader of the `--config` file, the environment, the
/// flags, `--print-config` and docs/settings.md all use this table. A new setting is a member in service_settings.hpp
/// and a row in its section's file; a new section is a struct there, a file with its rows, a line in settings_table.cpp
/// and one below.
namespace distilld {

template <>
struct api::SectionOf<ServerSettings> : SectionAt<&ServiceSettings::server> {};
template <>
struct api::SectionOf<JobsSettings> : SectionAt<&ServiceSettings::jobs> {};
template <>
struct api::SectionOf<LogSettings> : SectionAt<&ServiceSettings::log> {};
template <>
struct api::SectionOf<TeacherSettings> : SectionAt<&ServiceSettings::teacher> {};
template <>
struct api::SectionOf<SecuritySettings> : SectionAt<&ServiceSettings::security> {};
template <>
struct api::SectionOf<LauncherSettings> : SectionAt<&ServiceSettings::launcher> {};
template <>
struct api::SectionOf<WebhooksSettings> : SectionAt<&ServiceSettings::webhooks> {};

using SettingKind = api::FieldKind<ServiceSettings>;

struct Setting {
    std::string_view name;                 ///< "slots"; in the file under its section
    SettingKind kind;                      ///< member, values, range; the default is the member's
    std::string_view help;                 ///< one line
    std::string_view flag = {};            ///< if it is not "--" and the name with dashes
    std::string_view required = {};        ///< what must be given; empty = optional
    std::string_view older_variable = {};  ///< environment variable that is used if the section's own is not set
};

/// A conflict between settings that are each valid.
struct SettingConflict {
    std::string name;  ///< "security.tls_key"
    std::string detail;
};

struct SettingsSection {
    std::string_view name;
    std::string_view help;  ///< one line
    std::vector<Setting> settings;
    /// Called if all values are valid; may be null.
    std::vector<SettingConflict> (*check)(const ServiceSettings& settings) = nullptr;
};

struct SettingsTable {
    std::vector<SettingsSection> sections;

    /// Null for an unknown section.
    [[nodiscard]] const SettingsSection* section(std::string_view name) const;
    /// For a name "section.setting"; null if unknown.
    [[nodiscard]] const Setting* setting(std::string_view dotted) const;
};

/// "jobs.slots"
[[nodiscard]] std::string dotted_name(const SettingsSection& section, const Setting& setting);
/// "--slots"
[[nodiscard]] std::string flag_name(const Setting& setting);
/// "DISTILLD_JOBS_SLOTS"
[[nodiscard]] std::string variable_name(const SettingsSection& section, const Setting& setting);
/// How a setting is given: "--slots N, DISTILLD_JOBS_SLOTS, or slots in [jobs] of the file".
[[nodiscard]] std::string ways_to_give(const SettingsSection& section, const Setting& setting);

[[nodiscard]] const SettingsTable& settings_table();

/// Sets the value; relative paths start at `base`. On an error the member stays unchanged. The messages never quote the
/// value: "must be a whole number from 1 to 1024".
[[nodiscard]] std::vector<std::string> read_setting(const Setting& setting, const boost::json::value& value,
                                                    const std::filesystem::path& base, ServiceSettings& settings);

/// A list of distinct texts.
template <class Section>
[[nodiscard]] SettingKind make_names(std::vector<std::string> Section::* member, api::TextRange range) {
    return api::make_texts(member, {.text = range, .unique = true});
}

// The sections; longer ones have their own file.
[[nodiscard]] SettingsSection server_section();
[[nodiscard]] SettingsSection jobs_section();
[[nodiscard]] SettingsSection log_section();
[[nodiscard]] SettingsSection teacher_section();
[[nodiscard]] SettingsSection security_section();
[[nodiscard]] SettingsSection launcher_section();
[[nodiscard]] SettingsSection webhooks_section();

}  // namespace distilld
