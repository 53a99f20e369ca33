#pragma once

#include <boost/json/value.hpp>
#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include "server/settings/settings_load.hpp"

namespace distilld {

/// A value that stands in a file, or what is wrong there.
struct FileValue {
    std::string name;   ///< "jobs.slots", of a setting that there is
    std::string place;  ///< "distilld.toml:3:9"
    boost::json::value value;
};

struct FileSettings {
    std::vector<FileValue> values;              ///< by line
    std::vector<SettingsViolation> violations;  ///< by line: no TOML, unknown names
};

/// Reads a TOML file; `file` is what it is called in messages. A file that cannot be read, or is too large, is a
/// violation too.
[[nodiscard]] FileSettings read_settings_file(const std::filesystem::path& file, const std::filesystem::path& directory,
                                              const SettingsTable& table);

}  // namespace distilld
