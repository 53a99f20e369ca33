#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/time.hpp"
#include "pipeline/core/fetch_failure.hpp"

namespace distilld {

struct BreakerOptions {
    std::uint32_t failures = 5;                ///< in a row, to open
    Nanos cooldown = std::chrono::seconds(1);  ///< before a half-open probe; doubles with each failed probe
    Nanos max_cooldown = std::chrono::seconds(30);
    std::uint32_t explore_every = 64;  ///< requests after which an endpoint that got none is tried again
};

/// Which endpoint gets the next request: load in proportion to measured speed, and a circuit breaker each.
/// closed → (failures in a row) → open → (cooldown) → half-open: one probe → closed or open again.
class EndpointHealth {
  public:
    EndpointHealth(std::uint32_t endpoints, BreakerOptions options);

    /// The endpoint whose in-flight load, weighted by its measured latency, is least; nullopt when every breaker is
    /// open. `avoid` is taken only when nothing else is to be had.
    [[nodiscard]] std::optional<std::uint32_t> pick(Instant now, std::uint32_t avoid) const;
    /// Times at which an endpoint becomes available: an open breaker's next probe, the end of a Retry-After. May lie in
    /// the past.
    [[nodiscard]] std::vector<Instant> wakeups() const;

    /// Known to be down before its first request: its breaker is open.
    void on_absent(std::uint32_t endpoint, Instant now);
    [[nodiscard]] bool is_open(std::uint32_t endpoint) const { return endpoints_[endpoint].open; }

    void on_issued(std::uint32_t endpoint, Instant now);
    void on_success(std::uint32_t endpoint, Nanos latency);
    /// Returns true when this failure opened the breaker. `hold_until`: what Retry-After asked for.
    bool on_failure(std::uint32_t endpoint, FailureKind kind, Instant now, std::optional<Instant> hold_until);
    /// A request that was dropped by us: `age` is a lower bound of the latency it would have had.
    void on_dropped(std::uint32_t endpoint, Nanos age);

  private:
    struct Endpoint {
        std::uint32_t in_flight = 0;
        double latency_seconds = 0;  // exponentially weighted mean; 0 = not measured
        std::uint32_t failures_in_row = 0;
        bool open = false;
        bool probing = false;
        Instant open_until;
        Nanos cooldown{0};
        Instant hold_until;
        std::uint64_t last_issue = 0;  // count of requests when it last got one
    };

    [[nodiscard]] bool available(const Endpoint& endpoint, Instant now) const;
    static void open(Endpoint& endpoint, Instant now);  // for its cooldown
    void measure(Endpoint& endpoint, Nanos latency);

    BreakerOptions options_;
    std::vector<Endpoint> endpoints_;
    std::uint64_t issued_ = 0;
};

}  // namespace distilld
