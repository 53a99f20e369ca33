#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace distilld {

/// Whether a name has what makes it a pattern, as shells have them (glob(7)): `*`, `?`, `[a-z]`.
[[nodiscard]] bool looks_like_pattern(std::string_view name);

/// Names of what the pattern matches, folders left out, sorted by their bytes; there may be none. A folder on the way
/// that cannot be read is an error, which names the pattern. Looks at the disk; any thread.
[[nodiscard]] Result<std::vector<std::string>> files_matching(const std::string& pattern);

}  // namespace distilld
