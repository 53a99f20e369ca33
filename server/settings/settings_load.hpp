#pragma once

#include <boost/system/result.hpp>
#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "server/settings/settings_table.hpp"

namespace distilld {

/// The largest file of settings that is read.
inline constexpr std::size_t kSettingsSizeLimit = 1U << 20;

/// Where settings come from. A flag counts before a variable, a variable before the file, the file before the default.
struct SettingsInput {
    std::filesystem::path file;                             ///< TOML; empty = none
    std::map<std::string, std::string> environment;         ///< an empty text is as none
    std::map<std::string, std::vector<std::string>> flags;  ///< by dotted name: the words behind the flag
    std::filesystem::path working_directory;  ///< relative paths of flags, variables and `file` start here; absolute
};

/// Where the value of a setting comes from.
struct SettingSource {
    enum class Kind { standard, file, environment, flag };
    Kind kind = Kind::standard;
    std::string place;  ///< "distilld.toml:3:9", "DISTILLD_JOBS_SLOTS", "--slots"; standard: empty
};

/// "default", "file distilld.toml:3:9", "environment DISTILLD_JOBS_SLOTS", "flag --slots"
[[nodiscard]] std::string to_text(const SettingSource& source);

struct EffectiveSettings {
    ServiceSettings settings;
    std::map<std::string, SettingSource> sources;  ///< by dotted name, of every setting
    std::vector<std::string> missing;              ///< what is required and was not given, one sentence each
    std::vector<std::string> warnings;             ///< one sentence each: variables that look like a misspelt setting
};

/// One thing that is wrong.
struct SettingsViolation {
    std::string place;  ///< as of a SettingSource; "" = nowhere
    std::string name;   ///< "jobs.slots"; "" = the file as a whole
    std::string detail;
};

struct SettingsViolations {
    std::vector<SettingsViolation> violations;
};

/// One line a violation, without a final newline: "distilld.toml:3:9: jobs.slots: must be …".
[[nodiscard]] std::string describe(const SettingsViolations& violations);

/// Found by boost::system::result through argument-dependent lookup: ErrorException(invalid_input).
[[noreturn]] void throw_exception_from_error(const SettingsViolations& violations, const boost::source_location&);

using LoadedSettings = boost::system::result<EffectiveSettings, SettingsViolations>;

/// Reads the file and lays environment and flags over it. All that is wrong is listed, in the order of file (by line),
/// environment, flags; also what is overridden. A value is never echoed, for it may be a secret. What is required and
/// missing is no violation yet: who starts the service asks `missing`.
[[nodiscard]] LoadedSettings load_settings(const SettingsInput& input);

}  // namespace distilld
