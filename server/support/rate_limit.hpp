#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

namespace distilld {

/// So much at once, and so much a second after it; what goes beyond is counted (a token bucket). Time is an argument.
/// One thread.
class RateLimit {
  public:
    using Time = std::chrono::steady_clock::time_point;

    RateLimit(double at_once, double per_second) : at_once_(at_once), per_second_(per_second), left_(at_once) {}

    /// False: it goes beyond.
    bool take(double amount, Time now) {
        refill(now);
        if (left_ < amount) {
            refuse();
            return false;
        }
        left_ -= amount;
        return true;
    }

    /// As much may be taken as at the beginning.
    [[nodiscard]] bool is_full(Time now) {
        refill(now);
        return left_ >= at_once_;
    }

    /// Counts one that somebody else has said no to.
    void refuse() { ++refused_; }

    /// How many were said no to since this was asked last.
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
