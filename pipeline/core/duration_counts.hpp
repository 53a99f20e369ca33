#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace distilld {

/// Upper bounds, in seconds, of the histograms of requests and steps. Worker and service share them, so only counts are
/// sent.
inline constexpr std::array kRunDurationBounds{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,   0.25, 0.5,
                                               1.0,   2.5,    5.0,   10.0, 30.0,  60.0, 120.0, 300.0};

/// A histogram of durations.
struct DurationCounts {
    /// One count per bound of kRunDurationBounds, and one above; not cumulative. Empty: none yet.
    std::vector<std::uint64_t> counts;
    double sum_seconds = 0;

    /// A value equal to a bound counts below it.
    void observe(double seconds);
};

}  // namespace distilld
