#include "pipeline/core/scheduling/endpoint_tally.hpp"

namespace distilld {
namespace {

constexpr const char* kSuccess = "success";
constexpr const char* kFailure = "failure";

const char* outcome_name(std::optional<FailureKind> failure) {
    return failure ? to_string(*failure) : kSuccess;
}

/// Failures of all kinds share one histogram: one per kind would mean eight times as many series.
const char* duration_name(std::optional<FailureKind> failure) {
    return failure && *failure != FailureKind::cancelled ? kFailure : outcome_name(failure);
}

}  // namespace

void EndpointTally::on_ended(std::uint32_t endpoint, std::optional<FailureKind> failure, Nanos took) {
    Endpoint& known = endpoints_.at(endpoint);
    ++known.outcomes[failure];
    known.durations[duration_name(failure)].observe(to_seconds(took));
}

std::map<std::string, std::uint64_t> EndpointTally::outcomes(std::uint32_t endpoint) const {
    std::map<std::string, std::uint64_t> counts;
    for (const auto& [failure, count] : endpoints_.at(endpoint).outcomes) {
        counts[outcome_name(failure)] = count;
    }
    return counts;
}

std::vector<RequestDurations> EndpointTally::durations(std::uint32_t endpoint, const std::string& name) const {
    std::vector<RequestDurations> found;
    for (const auto& [outcome, seconds] : endpoints_.at(endpoint).durations) {
        found.push_back({name, outcome, seconds});
    }
    return found;
}

}  // namespace distilld
