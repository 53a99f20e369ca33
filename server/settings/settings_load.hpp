#pragma once

#include <boost/system/result.hpp>
#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "server/settings/settings_table.hpp"

namespace distilld {

/// Maximum bytes of a settings file.
inline constexpr std::size_t kSettingsSizeLimit = 1U << 20;

/// Sources of settings, by precedence: flag, variable, file, default.
struct SettingsInput {
    std::filesystem::path file;                             ///< TOML; empty = none
    std::map<std::string, std::string> environment;         ///< an empty text counts as not set
    std::map<std::string, std::vector<std::string>> flags;  ///< by dotted name: the words after the flag
    std::filesystem::path working_directory;  ///< absolute; base of relative paths in flags, variables and `file`
};

/// Where the value of a setting comes from.
struct SettingSource {
    enum class Kind { standard, file, environment, flag };
    Kind kind = Kind::standard;
    std::string place;  ///< "distilld.toml:3:9", "DISTILLD_JOBS_SLOTS", "--slots"; empty for standard
};

/// "default", "file distilld.toml:3:9", "environment DISTILLD_JOBS_SLOTS", "flag --slots"
[[nodiscard]] std::string to_text(const SettingSource& source);

struct EffectiveSettings {
    ServiceSettings settings;
    std::map<std::string, SettingSource> sources;  ///< of every setting, by dotted name
    std::vector<std::string> missing;              ///< missing required settings, one sentence each
    std::vector<std::string> warnings;             ///< one sentence each: variables that look like a misspelt setting
};

/// An invalid setting or file.
struct SettingsViolation {
    std::string place;  ///< as in SettingSource; "" = nowhere
    std::string name;   ///< "jobs.slots"; "" = the whole file
    std::string detail;
};

struct SettingsViolations {
    std::vector<SettingsViolation> violations;
};

/// One line per violation, without a final newline: "distilld.toml:3:9: jobs.slots: must be …".
[[nodiscard]] std::string describe(const SettingsViolations& violations);

/// Found by boost::system::result through argument-dependent lookup: ErrorException(invalid_input).
[[noreturn]] void throw_exception_from_error(const SettingsViolations& violations, const boost::source_location&);

using LoadedSettings = boost::system::result<EffectiveSettings, SettingsViolations>;

/// Reads the file, then overrides it by environment and flags. All violations are listed in the order file (by line),
/// environment, flags, even for overridden values. Values are never echoed, because they may be secret. A missing
/// required setting is not a violation: check `missing` before the start.
[[nodiscard]] LoadedSettings load_settings(const SettingsInput& input);

}  // namespace distilld
