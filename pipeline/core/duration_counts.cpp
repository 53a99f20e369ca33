#include "pipeline/core/duration_counts.hpp"

#include <algorithm>

namespace distilld {

void DurationCounts::observe(double seconds) {
    counts.resize(kRunDurationBounds.size() + 1);
    const auto* const bound = std::lower_bound(kRunDurationBounds.begin(), kRunDurationBounds.end(), seconds);
    ++counts[static_cast<std::size_t>(bound - kRunDurationBounds.begin())];
    sum_seconds += seconds;
}

}  // namespace distilld
