#pragma once

#include <chrono>

#include "base/time.hpp"

namespace distilld {

/// The graph's time is that of std::chrono::steady_clock.
[[nodiscard]] inline Instant steady_now() {
    return Instant(std::chrono::duration_cast<Nanos>(std::chrono::steady_clock::now().time_since_epoch()));
}

[[nodiscard]] inline std::chrono::steady_clock::time_point to_steady(Instant at) {
    return std::chrono::steady_clock::time_point(
        std::chrono::duration_cast<std::chrono::steady_clock::duration>(at.time_since_epoch()));
}

}  // namespace distilld
