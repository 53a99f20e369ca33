#include "server/supervisor/restart_policy.hpp"

#include <algorithm>

namespace distilld {
namespace {

/// Of the `number`-th try in a row, which counts from 1.
std::chrono::milliseconds pause_before(std::uint32_t number, const RestartLimits& limits) {
    auto pause = limits.min_pause;
    for (std::uint32_t doubled = 1; doubled < number && pause < limits.max_pause; ++doubled) {
        pause *= 2;
    }
    return std::min(pause, limits.max_pause);
}

std::string pause_text(std::chrono::milliseconds pause) {
    const auto count = pause.count();
    return count % 1000 == 0 ? std::to_string(count / 1000) + " s" : std::to_string(count) + " ms";
}

}  // namespace

std::optional<std::chrono::milliseconds> RestartPolicy::on_died(const RestartLimits& limits, RunReach reach) {
    failed_starts_ = 0;
    const bool progress = reach.last_step > best_.last_step || reach.first_step > best_.first_step;
    best_.first_step = std::max(best_.first_step, reach.first_step);
    best_.last_step = std::max(best_.last_step, reach.last_step);
    deaths_ = progress ? 1 : deaths_ + 1;
    if (deaths_ > limits.max_restarts) {
        return std::nullopt;
    }
    return pause_before(deaths_, limits);
}

std::chrono::milliseconds RestartPolicy::on_not_started(const RestartLimits& limits) {
    ++failed_starts_;
    return pause_before(failed_starts_, limits);
}

std::string RestartPolicy::restart_text(const RestartLimits& limits, std::chrono::milliseconds pause) const {
    return "; restart " + std::to_string(deaths_) + " of " + std::to_string(limits.max_restarts) +
           " from the newest checkpoint in " + pause_text(pause);
}

std::string RestartPolicy::given_up_text() const {
    return deaths_ > 1 ? "; it died " + std::to_string(deaths_) + " times in a row without progress" : std::string();
}

std::string RestartPolicy::retry_text(std::chrono::milliseconds pause) {
    return "; tried again in " + pause_text(pause);
}

}  // namespace distilld
