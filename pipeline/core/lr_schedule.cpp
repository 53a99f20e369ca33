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

std::uint64_t warmup_steps_of(const TrainingSpec& training, std::uint64_t total_steps) noexcept {
    if (training.warmup_steps != 0 || total_steps == 0) {
        return training.warmup_steps;
    }
    constexpr double kRounding = 1 + 1e-12;  // 0.07 of 100 steps are a little more than 7 in floating point
    const double steps = std::ceil(static_cast<double>(total_steps) * training.warmup_ratio / kRounding);
    return std::min(total_steps - 1, static_cast<std::uint64_t>(steps));
}

std::string why_nothing_is_learnt(const TrainingSpec& training, std::uint64_t total_steps) {
    if (training.learning_rate == 0) {
        return "/training/learning_rate: is 0, so no weight would change: give one above 0";
    }
    // A step with the full learning rate must follow the warm-up.
    if (training.warmup_steps >= total_steps) {
        return "/training/warmup_steps: the warm-up of " + std::to_string(training.warmup_steps) +
               " steps does not end before the run, which has " + std::to_string(total_steps) +
               ", so the learning rate never reaches its peak: use fewer, or set /training/warmup_ratio, a share of "
               "all steps";
    }
    return {};
}

}  // namespace distilld
