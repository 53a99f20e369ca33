#pragma once

#include <string>

#include "base/error.hpp"

namespace distilld {

/// Reads the bearer key from an environment variable, or from a file below the folder that kKeyRootVariable names
/// (links are followed); empty without either. The key is one line of at most 64 KiB; a trailing line break is removed.
/// Errors name the spec's field in `section`, never the key.
[[nodiscard]] Result<std::string> read_bearer(const std::string& variable, const std::string& file,
                                              const std::string& section = "/teacher");

}  // namespace distilld
