#pragma once

#include <array>
#include <cstddef>

#include "base/time.hpp"

namespace distilld {

/// The last latencies seen, for percentiles and the mean. Fixed size, no allocation; percentiles cost nothing, for they
/// are asked for more often than latencies are added.
class LatencyWindow {
  public:
    static constexpr std::size_t kCapacity = 128;

    void add(Nanos latency);
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    /// Nearest-rank percentile, `p` in [0, 1]; 0 when empty.
    [[nodiscard]] Nanos percentile(double p) const;
    /// Mean of the last `count` (of all that are kept when fewer); 0 when empty.
    [[nodiscard]] Nanos mean_of_last(std::size_t count) const;

  private:
    std::array<Nanos, kCapacity> ring_{};    // in the order of their coming
    std::array<Nanos, kCapacity> sorted_{};  // the same ones, smallest first
    std::size_t next_ = 0;
    std::size_t size_ = 0;
};

}  // namespace distilld
