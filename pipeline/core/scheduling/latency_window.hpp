#pragma once

#include <array>
#include <cstddef>

#include "base/time.hpp"

namespace distilld {

/// The last latencies, for percentiles and the mean. Fixed size, no allocation. Percentiles take constant time, because
/// they are read more often than latencies are added.
class LatencyWindow {
  public:
    static constexpr std::size_t kCapacity = 128;

    void add(Nanos latency);
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    /// Nearest-rank percentile, `p` in [0, 1]; 0 if empty.
    [[nodiscard]] Nanos percentile(double p) const;
    /// Mean of the last `count` latencies, or of all if there are fewer; 0 if empty.
    [[nodiscard]] Nanos mean_of_last(std::size_t count) const;

  private:
    std::array<Nanos, kCapacity> ring_{};    // in order of arrival
    std::array<Nanos, kCapacity> sorted_{};  // the same, ascending
    std::size_t next_ = 0;
    std::size_t size_ = 0;
};

}  // namespace distilld
