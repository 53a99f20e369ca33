#pragma once

#include <chrono>

namespace distilld {

/// Seconds since the Unix epoch, as in records, metrics and other systems.
[[nodiscard]] inline double unix_seconds(std::chrono::system_clock::time_point at) noexcept {
    return std::chrono::duration<double>(at.time_since_epoch()).count();
}

[[nodiscard]] inline double unix_now() noexcept {
    return unix_seconds(std::chrono::system_clock::now());
}

}  // namespace distilld
