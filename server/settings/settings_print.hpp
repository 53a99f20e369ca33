#pragma once

#include <string>

#include "base/error.hpp"
#include "server/settings/settings_load.hpp"

namespace distilld {

/// The settings as a TOML file with comments: meaning, values and source of each. load_settings() restores the same
/// settings from it.
[[nodiscard]] std::string settings_toml(const EffectiveSettings& effective);

/// docs/settings.md with its tables regenerated. They are between the lines "<!-- settings of jobs -->" and "<!-- end
/// of settings -->"; it is an error if a section lacks these lines.
[[nodiscard]] Result<std::string> with_settings_tables(std::string markdown);

}  // namespace distilld
