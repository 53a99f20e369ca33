#include "server/supervisor/restart_policy.hpp"

#include <algorithm>
#include <variant>

namespace distilld {
namespace {

/// The pause before the `number`-th try in a row; the first is 1.
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

std::string split_text(const MicroBatches& split) {
    return "batch_size " + std::to_string(split.batch_size) + " and micro_batches " +
           std::to_string(split.micro_batches);
}

}  // namespace

void RunReach::take(const WorkerEvent& event) {
    if (const auto* started = std::get_if<StartedEvent>(&event)) {
        *this = {started->first_step, started->first_step, {started->batch_size, started->micro_batches}};
    } else if (const auto* progress = std::get_if<ProgressEvent>(&event)) {
        last_step = std::max(last_step, progress->step);
    }
}

RestartVerdict RestartPolicy::on_died(const RestartLimits& limits, const RunReach& reach, bool out_of_memory) {
    if (out_of_memory && reach.split.batch_size != 0) {
        return on_out_of_memory(limits, reach.split);
    }
    failed_starts_ = 0;
    const bool progress = reach.last_step > best_.last_step || reach.first_step > best_.first_step;
    best_.first_step = std::max(best_.first_step, reach.first_step);
    best_.last_step = std::max(best_.last_step, reach.last_step);
    deaths_ = progress ? 1 : deaths_ + 1;
    if (deaths_ > limits.max_restarts) {
        return {
            std::nullopt, std::nullopt,
            deaths_ > 1 ? "; it died " + std::to_string(deaths_) + " times in a row without progress" : std::string()};
    }
    const auto pause = pause_before(deaths_, limits);
    return {pause, std::nullopt,
            "; restart " + std::to_string(deaths_) + " of " + std::to_string(limits.max_restarts) +
                " from the newest checkpoint in " + pause_text(pause)};
}

RestartVerdict RestartPolicy::on_out_of_memory(const RestartLimits& limits, const MicroBatches& effective) {
    RestartVerdict verdict;
    if (oom_restarts_ >= limits.max_oom_restarts) {
        if (oom_restarts_ > 0) {
            verdict.text = "; it was started again " + std::to_string(oom_restarts_) +
                           " times with smaller micro-batches, the last time with " + split_text(effective) +
                           ", and is not restarted again";
        }
        return verdict;
    }
    verdict.smaller = halved(effective);
    if (!verdict.smaller) {
        verdict.text = "; " + split_text(effective) +
                       " cannot be halved: shorter rows (dataset.sequence_length), training.gradient_checkpointing and "
                       "a smaller teacher.window_bytes take less memory";
        return verdict;
    }
    ++oom_restarts_;
    verdict.pause = limits.min_pause;
    verdict.text = "; out-of-memory restart " + std::to_string(oom_restarts_) + " of " +
                   std::to_string(limits.max_oom_restarts) + " from the newest checkpoint in " +
                   pause_text(limits.min_pause) + ", with " + split_text(*verdict.smaller) + " in place of " +
                   split_text(effective);
    return verdict;
}

RestartVerdict RestartPolicy::on_not_started(const RestartLimits& limits) {
    const auto pause = pause_before(++failed_starts_, limits);
    return {pause, std::nullopt, "; tried again in " + pause_text(pause)};
}

}  // namespace distilld
