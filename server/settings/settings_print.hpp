#pragma once

#include <string>

#include "base/error.hpp"
#include "server/settings/settings_load.hpp"

namespace distilld {

/// The settings as a TOML file with comments: what each is for, its values and where the value comes from.
/// load_settings() of it gives the same settings, but for secrets, of which only it is said that they are set.
[[nodiscard]] std::string settings_toml(const EffectiveSettings& effective);

/// docs/settings.md with its tables written anew. They stand between the lines "<!-- settings of jobs -->" and
/// "<!-- end of settings -->"; every section has such lines, or it is an error.
[[nodiscard]] Result<std::string> with_settings_tables(std::string markdown);

}  // namespace distilld
