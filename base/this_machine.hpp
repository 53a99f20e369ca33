#pragma once

#include <cstdint>
#include <string>

namespace distilld {

/// "?" if it has none.
[[nodiscard]] std::string host_name();

/// The id of the machine's current boot. Empty if unknown.
[[nodiscard]] std::string boot_id();

/// The same for processes that reach each other on the loopback interface: those of one machine and one network
/// namespace. Empty if unknown.
[[nodiscard]] std::string loopback_id();

/// Whether a process of this machine stands still, because it was stopped (SIGSTOP). False if there is none.
[[nodiscard]] bool is_stopped(std::uint64_t process);

}  // namespace distilld
