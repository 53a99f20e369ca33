#include "pipeline/core/scheduling/limit_controller.hpp"

#include <algorithm>
#include <cmath>

namespace distilld {

namespace {

constexpr std::uint64_t kMinTakes = 4;    // fewer give no stall fraction
constexpr std::uint64_t kCalmTakes = 64;  // calm for this many: try a lower limit
constexpr std::uint64_t kMaxHold = 4096;

}  // namespace

LimitController::LimitController(LimitOptions options) : options_(options) {
    options_.ceiling = std::max<std::uint32_t>(1, options_.ceiling);
    limit_ = options_.adaptive ? std::clamp<std::uint32_t>(options_.initial, 1, options_.ceiling) : options_.ceiling;
}

void LimitController::set_ceiling(std::uint32_t ceiling) {
    const bool at_ceiling = limit_ == options_.ceiling;
    options_.ceiling = std::max<std::uint32_t>(1, ceiling);
    if (!options_.adaptive && at_ceiling) {
        limit_ = options_.ceiling;
    }
    limit_ = std::min(limit_, options_.ceiling);
    reset_measure();
}

void LimitController::reset_measure() {
    waited_ = Nanos(0);
    busy_ = Nanos(0);
    taken_ = 0;
    full_ = false;
}

void LimitController::move_to(std::uint32_t limit, std::uint64_t n) {
    gate_ = n + limit_;  // about what is in flight now
    limit_ = limit;
    reset_measure();
}

void LimitController::on_taken(std::uint64_t n, Nanos waited, Nanos busy, Nanos latency, Nanos min_latency,
                               bool slots_full) {
    if (n == 0 || busy <= Nanos(0) || latency <= Nanos(0)) {
        return;  // the first fill cannot be hidden
    }
    if (jump(n, to_seconds(min_latency) / to_seconds(busy))) {
        return;
    }
    if (hold_ > 0) {
        --hold_;
    }
    if (n < gate_) {
        return;
    }
    waited_ += waited;
    busy_ += busy;
    full_ = full_ || (slots_full && waited > Nanos(0));
    ++taken_;

    const double stall = to_seconds(waited_) / to_seconds(waited_ + busy_);
    const double student = to_seconds(busy_) / static_cast<double>(taken_);
    const double needed = std::max(1.0, to_seconds(latency) / student);  // Little's law
    // One long wait is enough to act on if the limit is far below what the latency requires.
    const bool enough_seen = taken_ >= kMinTakes || needed > 1.5 * limit_;
    if (full_ && enough_seen && stall > options_.target_stall) {
        grow(n, needed, limit_ / to_seconds(latency));
    } else if (taken_ >= kCalmTakes) {
        shrink_if_calm(needed, stall);
    }
}

/// The first move does not wait for a stall: with far too few in flight, one is certain and lasts for a latency. Uses
/// the minimum latency, because a server's first answer may be slow for other reasons.
bool LimitController::jump(std::uint64_t n, double needed) {
    if (jumped_ || !options_.adaptive) {
        return false;
    }
    jumped_ = true;
    const auto wanted = static_cast<std::uint32_t>(std::min(std::ceil(1.1 * needed), 1e6));
    const std::uint32_t next = std::min(wanted, options_.ceiling);
    if (next <= limit_) {
        return false;
    }
    move_to(next, n);
    return true;
}

void LimitController::grow(std::uint64_t n, double needed, double throughput) {
    if (limit_ >= options_.ceiling || hold_ > 0) {
        if (taken_ >= kCalmTakes) {
            reset_measure();
        }
        return;
    }
    if (options_.adaptive && taken_ < limit_) {
        return;  // the mean latency is partly from before the last move
    }
    if (proven_limit_ == 0 || limit_ < proven_limit_) {
        proven_limit_ = limit_;
        proven_throughput_ = throughput;
    } else if (2 * limit_ >= 3 * proven_limit_) {
        const double grown = static_cast<double>(limit_) / proven_limit_ - 1.0;
        if (throughput < (1.0 + 0.25 * grown) * proven_throughput_) {
            hold_ = hold_length_;
            hold_length_ = std::min(hold_length_ * 2, kMaxHold);
            move_to(proven_limit_, n);
            return;
        }
        proven_limit_ = limit_;
        proven_throughput_ = throughput;
    }
    const auto wanted = static_cast<std::uint32_t>(std::min(std::ceil(1.1 * needed), 1e6));
    const auto max_useful = static_cast<std::uint32_t>(std::min(std::ceil(2.0 * needed), 1e6));
    const std::uint32_t step = limit_ + std::max<std::uint32_t>(1, limit_ / 8);
    std::uint32_t next = std::max(step, std::min(limit_ * 4, wanted));
    if (options_.adaptive) {
        next = std::min(next, std::max(max_useful, limit_));
    }
    next = std::min(next, options_.ceiling);
    if (next == limit_) {
        reset_measure();
    } else {
        move_to(next, n);
    }
}

void LimitController::shrink_if_calm(double needed, double stall) {
    const auto enough = static_cast<std::uint32_t>(std::ceil(1.25 * needed)) + 1;
    if (options_.adaptive && !full_ && stall < 0.2 * options_.target_stall && limit_ > 2 * enough) {
        limit_ = enough;
    }
    reset_measure();
}

}  // namespace distilld
