#include "pipeline/core/latency_window.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace distilld {

void LatencyWindow::add(Nanos latency) {
    ring_[next_] = latency;
    next_ = (next_ + 1) % kCapacity;
    size_ = std::min(size_ + 1, kCapacity);
    ++total_;
}

Nanos LatencyWindow::percentile(double p) const {
    if (size_ == 0) return 0;
    std::array<Nanos, kCapacity> sorted = ring_;
    const auto rank = static_cast<std::size_t>(std::ceil(p * static_cast<double>(size_)));
    const auto index = std::clamp<std::size_t>(rank, 1, size_) - 1;
    const auto end = sorted.begin() + static_cast<std::ptrdiff_t>(size_);
    std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(index), end);
    return sorted[index];
}

double LatencyWindow::mean() const {
    if (size_ == 0) return 0;
    const auto end = ring_.begin() + static_cast<std::ptrdiff_t>(size_);
    return std::accumulate(ring_.begin(), end, 0.0) / static_cast<double>(size_);
}

}  // namespace distilld
