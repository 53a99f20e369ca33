#include "pipeline/core/lr_schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace distilld {

double learning_rate_at(LrScheduler scheduler, double peak, std::uint64_t warmup_steps, std::uint64_t total_steps,
                        std::uint64_t step) noexcept {
    if (step < warmup_steps) {
        return peak * static_cast<double>(step) / static_cast<double>(warmup_steps);
    }
    const double decay_steps = std::max(1.0, static_cast<double>(total_steps) - static_cast<double>(warmup_steps));
    const double done = std::min(1.0, static_cast<double>(step - warmup_steps) / decay_steps);
    switch (scheduler) {
        case LrScheduler::constant:
            return peak;
        case LrScheduler::linear:
            return peak * (1.0 - done);
        case LrScheduler::cosine:
            return peak * 0.5 * (1.0 + std::cos(std::numbers::pi * done));
    }
    return peak;
}

}  // namespace distilld
