#pragma once

#include <string>

namespace distilld {

/// "?" if it has none.
[[nodiscard]] std::string host_name();

/// The id of the machine's current boot. Empty if unknown.
[[nodiscard]] std::string boot_id();

/// The same for processes that reach each other on the loopback interface: those of one machine and one network
/// namespace. Empty if unknown.
[[nodiscard]] std::string loopback_id();

}  // namespace distilld
