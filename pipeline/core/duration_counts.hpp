#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace distilld {

/// Upper bounds in seconds by which a run counts its requests and steps, from a teacher in the next process to one that
/// takes its time. Worker and service have them from here, so only counts travel.
inline constexpr std::array kRunDurationBounds{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,   0.25, 0.5,
                                               1.0,   2.5,    5.0,   10.0, 30.0,  60.0, 120.0, 300.0};

/// Durations, counted by size.
struct DurationCounts {
    /// One for each of kRunDurationBounds, and one for what is above them all; not cumulative. Empty: none yet.
    std::vector<std::uint64_t> counts;
    double sum_seconds = 0;

    /// One that is equal to a bound counts below it.
    void observe(double seconds);
};

}  // namespace distilld
