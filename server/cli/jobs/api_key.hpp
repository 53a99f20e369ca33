#pragma once

#include <string>

#include "base/error.hpp"

namespace distilld::cli {

/// Environment variable with the key that the command line sends to a service.
inline constexpr const char* kApiKeyVariable = "DISTILLD_API_KEY";

/// The key in the first line of `file` or, if that is empty, in the environment; empty if none. The error names where
/// it looked and never contains what it found.
[[nodiscard]] Result<std::string> read_api_key(const std::string& file);

}  // namespace distilld::cli
