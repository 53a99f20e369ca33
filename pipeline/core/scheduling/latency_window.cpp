#include "pipeline/core/scheduling/latency_window.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace distilld {

void LatencyWindow::add(Nanos latency) {
    auto end = sorted_.begin() + static_cast<std::ptrdiff_t>(size_);
    if (size_ == kCapacity) {
        const auto oldest = std::lower_bound(sorted_.begin(), end, ring_[next_]);
        std::move(oldest + 1, end, oldest);
        --end;
    } else {
        ++size_;
    }
    const auto place = std::upper_bound(sorted_.begin(), end, latency);
    std::move_backward(place, end, end + 1);
    *place = latency;
    ring_[next_] = latency;
    next_ = (next_ + 1) % kCapacity;
}

Nanos LatencyWindow::percentile(double p) const {
    if (size_ == 0) {
        return Nanos(0);
    }
    const auto rank = static_cast<std::size_t>(std::ceil(p * static_cast<double>(size_)));
    return sorted_[std::clamp<std::size_t>(rank, 1, size_) - 1];
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
