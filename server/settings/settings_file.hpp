#pragma once

#include <boost/json/value.hpp>
#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include "server/settings/settings_load.hpp"

namespace distilld {

/// A value in the file.
struct FileValue {
    std::string name;   ///< "jobs.slots"; the setting exists
    std::string place;  ///< "distilld.toml:3:9"
    boost::json::value value;
};

struct FileSettings {
    std::vector<FileValue> values;              ///< by line
    std::vector<SettingsViolation> violations;  ///< by line: invalid TOML, unknown names
};

/// Reads a TOML file; `file` is its name in messages. An unreadable or too large file is also a violation.
[[nodiscard]] FileSettings read_settings_file(const std::filesystem::path& file, const std::filesystem::path& directory,
                                              const SettingsTable& table);

}  // namespace distilld
