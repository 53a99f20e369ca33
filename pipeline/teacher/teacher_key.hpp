#pragma once

#include <string>

#include "base/error.hpp"

namespace distilld {

/// The bearer key in an environment variable; empty without a variable. Errors name the spec's field, never the key.
[[nodiscard]] Result<std::string> read_bearer(const std::string& variable);

}  // namespace distilld
