#pragma once

#include <string>

#include "base/error.hpp"

namespace distilld {

/// The bearer key in an environment variable, or in a file below the folder that kKeyRootVariable names, links
/// followed; empty without either. One line of at most 64 KiB; a line break at its end does not count. Errors name the
/// spec's field, never the key.
[[nodiscard]] Result<std::string> read_bearer(const std::string& variable, const std::string& file);

}  // namespace distilld
