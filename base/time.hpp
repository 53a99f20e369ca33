#pragma once

#include <chrono>

namespace distilld {

/// A span of time.
using Nanos = std::chrono::nanoseconds;

/// The clock of code that receives the time as an argument. It has no now(): the caller decides whether time is steady
/// or virtual.
struct GivenClock {
    using duration = Nanos;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<GivenClock>;
    static constexpr bool is_steady = true;
};

/// A point in time: the span since the zero of the caller's clock.
using Instant = GivenClock::time_point;

[[nodiscard]] constexpr double to_seconds(Nanos span) noexcept {
    return std::chrono::duration<double>(span).count();
}
[[nodiscard]] constexpr double to_milliseconds(Nanos span) noexcept {
    return std::chrono::duration<double, std::milli>(span).count();
}
[[nodiscard]] constexpr Nanos from_seconds(double seconds) noexcept {
    return std::chrono::duration_cast<Nanos>(std::chrono::duration<double>(seconds));
}
[[nodiscard]] constexpr Nanos from_milliseconds(double milliseconds) noexcept {
    return std::chrono::duration_cast<Nanos>(std::chrono::duration<double, std::milli>(milliseconds));
}
[[nodiscard]] constexpr Nanos scaled(Nanos span, double factor) noexcept {
    return Nanos(static_cast<Nanos::rep>(static_cast<double>(span.count()) * factor));
}

}  // namespace distilld
