#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

namespace distilld {

/// A token bucket: a burst, then a rate per second. Counts refused requests. Time is an argument. One thread.
class RateLimit {
  public:
    using Time = std::chrono::steady_clock::time_point;

    RateLimit(double at_once, double per_second) : at_once_(at_once), per_second_(per_second), left_(at_once) {}

    /// False: above the limit.
    bool take(double amount, Time now) {
        refill(now);
        if (left_ < amount) {
            refuse();
            return false;
        }
        left_ -= amount;
        return true;
    }

    /// Whether the bucket is full.
    [[nodiscard]] bool is_full(Time now) {
        refill(now);
        return left_ >= at_once_;
    }

    /// Counts a request that was refused elsewhere.
    void refuse() { ++refused_; }

    /// Refused requests since the last call.
    [[nodiscard]] std::uint64_t take_refused() { return std::exchange(refused_, 0); }

  private:
    void refill(Time now) {
        const double seconds = std::max(0.0, std::chrono::duration<double>(now - last_).count());
        left_ = std::min(at_once_, left_ + seconds * per_second_);
        last_ = now;
    }

    double at_once_;
    double per_second_;
    double left_;
    Time last_{};
    std::uint64_t refused_ = 0;
};

}  // namespace distilld
