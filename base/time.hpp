#pragma once

#include <cstdint>

namespace distilld {

/// A point in time or a span, in nanoseconds. Whose clock it is (steady or virtual) is the caller's matter; core has
/// none.
using Nanos = std::int64_t;

inline constexpr Nanos kMicrosecond = 1'000;
inline constexpr Nanos kMillisecond = 1'000'000;
inline constexpr Nanos kSecond = 1'000'000'000;

[[nodiscard]] constexpr double to_seconds(Nanos span) noexcept {
    return static_cast<double>(span) * 1e-9;
}
[[nodiscard]] constexpr Nanos from_seconds(double seconds) noexcept {
    return static_cast<Nanos>(seconds * 1e9);
}

}  // namespace distilld
