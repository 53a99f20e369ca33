#pragma once

#include <string>

#include "base/error.hpp"

namespace distilld::cli {

/// Environment variable with the key that the command line shows a service.
inline constexpr const char* kApiKeyVariable = "DISTILLD_API_KEY";

/// The key in the first line of `file`; where that is empty, the one in the environment, or none. The error names where
/// it was looked for and never holds what stood there.
[[nodiscard]] Result<std::string> read_api_key(const std::string& file);

}  // namespace distilld::cli
