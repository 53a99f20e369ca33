#pragma once

#include <string>
#include <string_view>

/// Texts as gzip and zstd pack them.
namespace distilld::test {

[[nodiscard]] std::string gzipped(std::string_view text);

/// With a checksum. `window_log`: 0 = what the library chooses.
[[nodiscard]] std::string zstd_packed(std::string_view text, int window_log = 0);

}  // namespace distilld::test
