#pragma once

#include <cstddef>
#include <string>

namespace distilld {

/// Random numbers of 32 bits from the system, eight lower-case hex digits each. Any thread. Throws std::exception if
/// the system has none.
[[nodiscard]] std::string random_hex(std::size_t words);

}  // namespace distilld
