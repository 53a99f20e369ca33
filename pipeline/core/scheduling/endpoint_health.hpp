#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/time.hpp"
#include "pipeline/core/scheduling/endpoint_limit.hpp"
#include "pipeline/core/scheduling/fetch_failure.hpp"

namespace distilld {

struct BreakerOptions {
    std::uint32_t failures = 5;                ///< in a row, to open
    Nanos cooldown = std::chrono::seconds(1);  ///< before a half-open probe; doubles with each failed probe
    Nanos max_cooldown = std::chrono::seconds(15);
    Nanos max_hold = std::chrono::seconds(300);  ///< limit of an obeyed Retry-After
    std::uint32_t explore_every = 64;            ///< requests to others, after which an idle endpoint is tried again
};

/// Consequences of a failure.
struct FailureVerdict {
    bool opened = false;  ///< it opened the breaker
    /// The request or its answer is at fault, so retries are limited. False: the environment is at fault (load,
    /// network, a starting server) and is waited for.
    bool spends_attempt = false;
};

/// Chooses the endpoint of the next request: load in proportion to measured speed, with a limit and a circuit breaker
/// per endpoint. closed → (failures in a row) → open → (cooldown) → half-open: one probe → closed or open again.
///
/// A refusal for load counts towards the breaker once per halving of the limit: one large burst does not open it, but
/// an endpoint that refuses everything does. A rejection (a wrong key, a 404 of an endpoint that has answered) opens it
/// at once, with the longest pause between probes. A request from before the breaker opened (a straggler) never counts
/// as its probe.
class EndpointHealth {
  public:
    /// No endpoint gets more than `ceiling` requests at a time.
    EndpointHealth(std::uint32_t endpoints, BreakerOptions options, std::uint32_t ceiling);

    enum class Probing {
        welcome,      ///< a half-open breaker's probe goes first
        last_resort,  ///< only if no other endpoint is available
    };
    /// The endpoint with the least load in flight, weighted by its measured latency; nullopt if none may get another
    /// request. `avoid` is used only if no other is available.
    [[nodiscard]] std::optional<std::uint32_t> pick(Instant now, std::uint32_t avoid, Probing probing) const;
    /// The first time after `now` at which an endpoint becomes available by itself: an open breaker's next probe, the
    /// end of a Retry-After.
    [[nodiscard]] std::optional<Instant> next_available(Instant now) const;

    /// The endpoint is known to be down before its first request: opens its breaker.
    void on_absent(std::uint32_t endpoint, Instant now);
    void set_ceiling(std::uint32_t ceiling) { ceiling_ = ceiling; }

    void on_issued(std::uint32_t endpoint, Instant now);
    /// A request issued at `issued` was answered.
    void on_success(std::uint32_t endpoint, Instant issued, Instant now);
    /// `retry_after`: the pause that the endpoint requested, up to BreakerOptions::max_hold.
    FailureVerdict on_failure(std::uint32_t endpoint, FailureKind kind, Instant issued, Instant now,
                              std::optional<Nanos> retry_after);
    /// A request that we dropped: its age is a lower bound of its latency. `late`: its hedge was faster; an endpoint
    /// with only such results counts as failing. True if this opened the breaker.
    bool on_dropped(std::uint32_t endpoint, Instant issued, Instant now, bool late);
    /// A request that was never sent, because there was nothing to ask.
    void on_withdrawn(std::uint32_t endpoint);

    [[nodiscard]] bool is_open(std::uint32_t endpoint) const { return endpoints_[endpoint].open; }
    [[nodiscard]] std::uint32_t in_flight(std::uint32_t endpoint) const { return endpoints_[endpoint].in_flight; }
    /// Requests that it may have in flight; with an open breaker, its probe.
    [[nodiscard]] std::uint32_t limit(std::uint32_t endpoint) const;
    /// Exponentially weighted mean of its answers; 0 = not measured.
    [[nodiscard]] double latency_seconds(std::uint32_t endpoint) const { return endpoints_[endpoint].latency_seconds; }
    [[nodiscard]] std::uint32_t open_count() const;
    /// Whether every endpoint rejected its last request.
    [[nodiscard]] bool all_reject() const;
    /// Requests that all endpoints together may have in flight, including probes of open breakers; at most `ceiling`.
    [[nodiscard]] std::uint32_t capacity() const;

  private:
    struct Endpoint {
        std::uint32_t in_flight = 0;
        EndpointLimit limit;
        double latency_seconds = 0;  // exponentially weighted mean; 0 = not measured
        std::uint32_t failures_in_row = 0;
        bool serving = false;    // has answered since it was last lost
        bool rejecting = false;  // rejected its last request
        bool open = false;
        bool probing = false;
        Instant opened_at;
        Instant open_until;
        Nanos cooldown{0};
        Instant hold_since;
        Instant hold_until;
        std::uint64_t last_issue = 0;  // value of issued_ at its last request
    };

    [[nodiscard]] static bool available(const Endpoint& endpoint, Instant now);
    [[nodiscard]] static bool is_straggler(const Endpoint& endpoint, Instant issued) {
        return endpoint.open && issued <= endpoint.opened_at;
    }
    void open(Endpoint& endpoint, Instant now) const;  // for its cooldown
    void open_again(Endpoint& endpoint, Instant now) const;
    void hold(Endpoint& endpoint, Instant now, Nanos retry_after) const;
    FailureVerdict reject(Endpoint& endpoint, Instant issued, Instant now) const;
    static void measure(Endpoint& endpoint, Nanos latency);

    BreakerOptions options_;
    std::uint32_t ceiling_;
    std::vector<Endpoint> endpoints_;
    std::uint64_t issued_ = 0;
};

}  // namespace distilld
