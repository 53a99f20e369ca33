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

std::string cut_text(const MicroBatches& cut) {
    return "batch_size " + std::to_string(cut.batch_size) + " and micro_batches " + std::to_string(cut.micro_batches);
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

OomVerdict RestartPolicy::on_out_of_memory(const RestartLimits& limits, const MicroBatches& in_force) {
    OomVerdict verdict;
    if (oom_restarts_ >= limits.max_oom_restarts) {
        if (oom_restarts_ > 0) {
            verdict.text = "; it was started again " + std::to_string(oom_restarts_) +
                           " times with smaller micro-batches, the last with " + cut_text(in_force) +
                           ", and is not any more";
        }
        return verdict;
    }
    verdict.smaller = halved(in_force);
    if (!verdict.smaller) {
        verdict.text = "; " + cut_text(in_force) +
                       " cannot be halved: shorter rows (dataset.sequence_length), training.gradient_checkpointing and "
                       "a smaller teacher.window_bytes take less memory";
        return verdict;
    }
    ++oom_restarts_;
    verdict.pause = limits.min_pause;
    verdict.text = "; out-of-memory restart " + std::to_string(oom_restarts_) + " of " +
                   std::to_string(limits.max_oom_restarts) + " from the newest checkpoint in " +
                   pause_text(verdict.pause) + ", with " + cut_text(*verdict.smaller) + " in place of " +
                   cut_text(in_force);
    return verdict;
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
