#include "pipeline/core/latency_window.hpp"

#include <algorithm>
#include <cmath>

namespace distilld {

void LatencyWindow::add(Nanos latency) {
    ring_[next_] = latency;
    next_ = (next_ + 1) % kCapacity;
    size_ = std::min(size_ + 1, kCapacity);
}

Nanos LatencyWindow::percentile(double p) const {
    if (size_ == 0) {
        return Nanos(0);
    }
    std::array<Nanos, kCapacity> sorted = ring_;
    const auto rank = static_cast<std::size_t>(std::ceil(p * static_cast<double>(size_)));
    const auto index = std::clamp<std::size_t>(rank, 1, size_) - 1;
    const auto end = sorted.begin() + static_cast<std::ptrdiff_t>(size_);
    std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(index), end);
    return sorted[index];
}

Nanos LatencyWindow::mean_of_last(std::size_t count) const {
    const std::size_t used = std::min(count, size_);
    if (used == 0) {
        return Nanos(0);
    }
    Nanos sum(0);
    for (std::size_t i = 1; i <= used; ++i) {
        sum += ring_[(next_ + kCapacity - i) % kCapacity];
    }
    return sum / static_cast<Nanos::rep>(used);
}

}  // namespace distilld
