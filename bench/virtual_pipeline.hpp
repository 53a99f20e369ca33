#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/core/scheduling/prefetch_scheduler.hpp"

namespace distilld::bench {

/// What happens to one request of the simulated teacher.
struct VirtualAnswer {
    Nanos latency{0};
    std::optional<FailureKind> failure;  ///< set: the request fails so after `latency`
    std::optional<Nanos> retry_after;
};

/// Fate of a request, decided when it is issued. `in_flight` counts it.
using VirtualTeacher = std::function<VirtualAnswer(const IssueAction& request, std::uint32_t in_flight, Instant now)>;

struct VirtualRun {
    Nanos makespan{0};
    Nanos waited{0};                   ///< student idle, the first fill included
    std::vector<Instant> taken;        ///< when micro-batch n was taken
    std::vector<std::uint32_t> limit;  ///< C in force at that time
    std::uint32_t max_in_flight = 0;
    std::uint32_t max_unreleased = 0;
    std::uint32_t window = 0;  ///< W at the end
    SchedulerCounters counters;
    std::optional<GiveUpAction> gave_up;
};

/// Runs the scheduler of the service under a virtual clock: `student` of training for each micro-batch, from Instant{}
/// on, the teacher as given. Deterministic.
VirtualRun run_virtual(const SchedulerOptions& options, Nanos student, const VirtualTeacher& teacher,
                       AnswerBytes bytes = {1, 1});

/// Makespan of a clairvoyant pipeline fed the same latencies: `concurrency` slots, no window, issue in order as slots
/// free up, train in order. No schedule with in-order training and as many slots issues any micro-batch earlier.
Nanos oracle_makespan(const std::vector<Nanos>& latencies, std::uint32_t concurrency, Nanos student);

/// Lognormal latencies with the given mean and sigma of the logarithm; sigma 0: all equal to the mean. A function of
/// the arguments alone (own generator), so that two programs see the same ones.
std::vector<Nanos> lognormal_latencies(std::uint64_t count, Nanos mean, double sigma, std::uint64_t seed);

}  // namespace distilld::bench
