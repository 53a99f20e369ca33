#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "pipeline/core/duration_counts.hpp"
#include "pipeline/core/scheduling/fetch_failure.hpp"
#include "pipeline/core/worker_events.hpp"

namespace distilld {

/// Counts the results and durations of requests per endpoint. No clock.
class EndpointTally {
  public:
    explicit EndpointTally(std::uint32_t endpoints) : endpoints_(endpoints) {}

    /// A request to `endpoint` ended after `took`; without `failure`, it was answered. A dropped one
    /// (FailureKind::cancelled) does not count as the endpoint's speed; its duration is counted separately.
    void on_ended(std::uint32_t endpoint, std::optional<FailureKind> failure, Nanos took);
    /// The endpoint answered for this many input positions.
    void on_answered(std::uint32_t endpoint, std::uint64_t tokens) { endpoints_.at(endpoint).tokens += tokens; }

    /// Requests by result: success or the name of a FailureKind.
    [[nodiscard]] std::map<std::string, std::uint64_t> outcomes(std::uint32_t endpoint) const;
    [[nodiscard]] std::uint64_t tokens(std::uint32_t endpoint) const { return endpoints_.at(endpoint).tokens; }
    /// One histogram per result that occurred: success, failure, cancelled.
    [[nodiscard]] std::vector<RequestDurations> durations(std::uint32_t endpoint, const std::string& name) const;

  private:
    struct Endpoint {
        std::map<std::optional<FailureKind>, std::uint64_t> outcomes;
        std::map<std::string, DurationCounts, std::less<>> durations;  // by success, failure, cancelled
        std::uint64_t tokens = 0;
    };
    std::vector<Endpoint> endpoints_;
};

}  // namespace distilld
