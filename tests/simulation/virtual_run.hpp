#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "bench/virtual_pipeline.hpp"

/// What the simulations have in common.
namespace distilld::bench {

/// The actions of one kind, in their order.
template <class Action>
std::vector<Action> only(const std::vector<SchedulerAction>& actions) {
    std::vector<Action> found;
    for (const SchedulerAction& action : actions) {
        if (const auto* wanted = std::get_if<Action>(&action)) {
            found.push_back(*wanted);
        }
    }
    return found;
}

/// So many requests at once, none of them a hedge.
inline SchedulerOptions options_of(std::uint32_t concurrency, std::uint64_t batches) {
    SchedulerOptions options;
    options.end = batches;
    options.limit.ceiling = concurrency;
    options.hedge.enabled = false;
    return options;
}

/// Answers each micro-batch after its latency. `latencies` must outlive the teacher.
inline VirtualTeacher from_list(const std::vector<Nanos>& latencies) {
    return [&latencies](const IssueAction& request, std::uint32_t, Instant) {
        return VirtualAnswer{latencies[request.micro_batch], {}, {}};
    };
}

}  // namespace distilld::bench
