#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "pipeline/core/duration_counts.hpp"
#include "pipeline/core/fetch_failure.hpp"
#include "pipeline/core/worker_events.hpp"

namespace distilld {

/// Counts what the requests to each endpoint came to, and how long they took. No clock.
class EndpointTally {
  public:
    explicit EndpointTally(std::uint32_t endpoints) : endpoints_(endpoints) {}

    /// A request to `endpoint` ended after `took`; `failure` empty: it was answered. One that we dropped
    /// (FailureKind::cancelled) says nothing of the endpoint's speed, and counts among its durations as what it is.
    void on_ended(std::uint32_t endpoint, std::optional<FailureKind> failure, Nanos took);
    /// It has answered for so many input positions.
    void on_answered(std::uint32_t endpoint, std::uint64_t tokens) { endpoints_.at(endpoint).tokens += tokens; }

    /// How often what came of the requests: success or a FailureKind, by name.
    [[nodiscard]] std::map<std::string, std::uint64_t> outcomes(std::uint32_t endpoint) const;
    [[nodiscard]] std::uint64_t tokens(std::uint32_t endpoint) const { return endpoints_.at(endpoint).tokens; }
    /// One for each of success, failure and cancelled that there was.
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
