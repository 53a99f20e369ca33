#include "pipeline/core/limit_controller.hpp"

#include <algorithm>
#include <cmath>

namespace distilld {

namespace {

constexpr std::uint64_t kLeastTakes = 4;            // fewer say nothing of a stall fraction
constexpr std::uint64_t kShrinkTakes = 64;          // calm for so long: try fewer
constexpr std::uint64_t kForgetOverloadTakes = 256;
constexpr double kUsefulGain = 1.05;

}  // namespace

LimitController::LimitController(LimitOptions options) : options_(options) {
    options_.ceiling = std::max<std::uint32_t>(1, options_.ceiling);
    limit_ = options_.adaptive ? std::clamp<std::uint32_t>(options_.initial, 1, options_.ceiling) : options_.ceiling;
}

void LimitController::set_ceiling(std::uint32_t ceiling) {
    const bool at_ceiling = limit_ == options_.ceiling;
    options_.ceiling = std::max<std::uint32_t>(1, ceiling);
    if (!options_.adaptive && at_ceiling) limit_ = options_.ceiling;
    limit_ = std::min(limit_, options_.ceiling);
    reset_measure();
}

void LimitController::reset_measure() {
    waited_ = 0;
    busy_ = 0;
    taken_ = 0;
    full_ = false;
}

void LimitController::move_to(std::uint32_t limit, std::uint64_t next_issue) {
    limit_ = limit;
    gate_ = next_issue;
    reset_measure();
}

void LimitController::on_taken(std::uint64_t n, Nanos waited, Nanos busy, double latency, bool slots_full,
                               std::uint64_t next_issue, Nanos now) {
    if (n == 0 || busy <= 0) return;  // the first fill cannot be hidden
    if (overloaded_at_ != 0 && ++taken_since_overload_ >= kForgetOverloadTakes) overloaded_at_ = 0;
    if (hold_ > 0) --hold_;
    if (n < gate_) return;
    if (taken_ == 0) measure_began_ = now - waited - busy;
    waited_ += static_cast<double>(waited);
    busy_ += static_cast<double>(busy);
    full_ = full_ || (slots_full && waited > 0);
    ++taken_;

    const double stall = waited_ / (waited_ + busy_);
    const double student = busy_ / static_cast<double>(taken_);
    const double needed = std::max(1.0, latency / student);  // Little's law
    const double rate = static_cast<double>(taken_) / std::max(1.0, static_cast<double>(now - measure_began_));
    const bool stalled = stall > options_.target_stall && full_;

    // One long wait is enough to act on when the limit is far below what the latency asks for.
    const bool far_below = needed > 1.5 * limit_;
    if (stalled && (taken_ >= kLeastTakes || far_below)) {
        if (rate_before_ > 0 && taken_ >= kLeastTakes && rate < kUsefulGain * rate_before_ && limit_ > limit_before_) {
            hold_ = hold_length_;
            hold_length_ = std::min<std::uint64_t>(hold_length_ * 2, 4096);
            rate_before_ = 0;
            move_to(limit_before_, next_issue);
            return;
        }
        if (hold_ > 0 || limit_ >= options_.ceiling) {
            if (taken_ >= kShrinkTakes) reset_measure();
            return;
        }
        const auto wanted = static_cast<std::uint32_t>(std::min(std::ceil(1.1 * needed), 1e6));
        // Jitter can stall a student that Little's law calls fed: more slots help, up to twice the law's number.
        const auto most = static_cast<std::uint32_t>(std::min(std::ceil(2.0 * needed), 1e6));
        std::uint32_t next = std::max(limit_ + 1, std::min(limit_ * 4, wanted));
        if (options_.adaptive) next = std::min(next, std::max(most, limit_));
        if (overloaded_at_ != 0) next = std::min(next, std::max(limit_ + 1, overloaded_at_ * 9 / 10));
        next = std::min(next, options_.ceiling);
        if (next == limit_) {
            reset_measure();
            return;
        }
        if (overloaded_at_ != 0 && taken_ < 2 * static_cast<std::uint64_t>(limit_)) return;
        rate_before_ = taken_ >= kLeastTakes ? rate : 0;
        limit_before_ = limit_;
        move_to(next, next_issue);
        return;
    }
    if (taken_ >= kShrinkTakes) {
        const auto enough = static_cast<std::uint32_t>(std::ceil(1.25 * needed)) + 1;
        rate_before_ = 0;
        if (options_.adaptive && !full_ && stall < 0.2 * options_.target_stall && limit_ > 2 * enough) {
            move_to(enough, next_issue);
        } else {
            reset_measure();
        }
    }
}

void LimitController::on_overload(Nanos issued, Nanos now) {
    if (issued <= last_decrease_) return;
    last_decrease_ = now;
    overloaded_at_ = limit_;
    taken_since_overload_ = 0;
    limit_ = std::max<std::uint32_t>(1, limit_ / 2);
    rate_before_ = 0;
    reset_measure();
}

}  // namespace distilld
