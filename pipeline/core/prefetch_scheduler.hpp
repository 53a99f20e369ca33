#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <variant>
#include <vector>

#include "base/random.hpp"
#include "base/time.hpp"
#include "pipeline/core/endpoint_health.hpp"
#include "pipeline/core/fetch_failure.hpp"
#include "pipeline/core/latency_window.hpp"
#include "pipeline/core/limit_controller.hpp"

namespace distilld {

using RequestId = std::uint64_t;

struct RetryPolicy {
    std::uint32_t max_retries = 8;  ///< further attempts of one micro-batch after its first
    Nanos base = std::chrono::milliseconds(100);
    Nanos max = std::chrono::seconds(30);
};

struct HedgePolicy {
    bool enabled = true;
    double percentile = 0.95;  ///< a request older than this percentile is late
    double paid_factor = 2.0;  ///< late by this factor: hedged even when it costs a slot that others could use
    double budget = 0.1;       ///< hedges earned by each first request (token bucket)
    double burst = 4.0;        ///< size of the bucket
    std::uint32_t min_samples = 8;
};

struct SchedulerOptions {
    std::uint64_t first = 0;  ///< micro-batches [first, end)
    std::uint64_t end = 0;
    std::uint32_t endpoints = 1;
    LimitOptions limit;                ///< C: requests in flight
    std::uint32_t window = 0;          ///< W: micro-batches issued and not yet released; 0 = 4C
    std::uint64_t window_bytes = 0;    ///< bound on the bytes of W; 0 = none. One micro-batch is always let through
    std::uint64_t expected_bytes = 0;  ///< size of a response until the first has been seen
    RetryPolicy retry;
    HedgePolicy hedge;
    BreakerOptions breaker;
    std::uint64_t jitter_seed = 1;
};

/// Send a request for `micro_batch` to `endpoint`.
struct IssueAction {
    RequestId request = 0;
    std::uint64_t micro_batch = 0;
    std::uint32_t endpoint = 0;
    std::uint32_t attempt = 0;  ///< 0 = first
    bool hedge = false;
};
/// Drop a request whose answer is no longer wanted. Its slot is free at once; later events of it are ignored.
struct CancelAction {
    RequestId request = 0;
};
/// The answer `request` of `micro_batch` may go on; emitted in micro-batch order.
struct DeliverAction {
    std::uint64_t micro_batch = 0;
    RequestId request = 0;
};
/// `micro_batch` cannot be had: retries are used up, or the teacher rejected it.
struct GiveUpAction {
    std::uint64_t micro_batch = 0;
    RequestId request = 0;  ///< the last one to fail
    FailureKind kind = FailureKind::connection;
    std::uint32_t attempts = 0;
};
using SchedulerAction = std::variant<IssueAction, CancelAction, DeliverAction, GiveUpAction>;

struct SchedulerCounters {
    std::uint64_t requests = 0;  ///< issued, retries and hedges included
    std::uint64_t completed = 0;
    std::uint64_t retries = 0;
    std::uint64_t hedges = 0;
    std::uint64_t hedge_wins = 0;
    std::map<FailureKind, std::uint64_t> failures;
    std::uint64_t breaker_openings = 0;
};

/// Decides which teacher request is made when: out-of-order completion, in-order release, retries, hedges, breakers,
/// adaptive concurrency. A pure state machine: events in, actions out, time as an argument. It has no clock, no thread
/// and no I/O, so the simulation drives the very code that the service runs.
///
/// After any event call poll() and carry out the actions; call it again at next_wakeup().
class PrefetchScheduler {
  public:
    explicit PrefetchScheduler(SchedulerOptions options);

    // --- events ---
    /// `request` was answered; `bytes` is what its answer holds in memory.
    void on_completed(RequestId request, std::uint64_t bytes, Instant now);
    void on_failed(RequestId request, FailureKind kind, std::optional<Nanos> retry_after, Instant now);
    /// The student is idle and wants its next micro-batch.
    void on_wanted(Instant now);
    /// The student took micro-batch `n` (its busy time begins).
    void on_taken(std::uint64_t n, Instant now);
    /// The student has done with micro-batch `n` (its busy time ends).
    void on_trained(std::uint64_t n, Instant now);
    /// `n` no longer counts against the window. In parallel mode at the same time as on_taken, in sequential mode after
    /// on_trained.
    void on_released(std::uint64_t n, Instant now);
    /// `endpoint` is known to be down: it gets nothing but a half-open breaker's probes until it answers.
    void on_endpoint_absent(std::uint32_t endpoint, Instant now);
    /// An operator's order; the controller stays at or below it from now on.
    void set_ceiling(std::uint32_t ceiling);

    // --- actions ---
    [[nodiscard]] std::vector<SchedulerAction> poll(Instant now);
    /// When, after a poll() at `now`, there will be something to do although no event comes (a retry, a hedge, a
    /// breaker's probe).
    [[nodiscard]] std::optional<Instant> next_wakeup(Instant now) const;

    // --- what it sees ---
    [[nodiscard]] std::uint32_t limit() const noexcept { return controller_.limit(); }
    [[nodiscard]] std::uint32_t window() const noexcept;
    [[nodiscard]] std::uint32_t in_flight() const noexcept { return static_cast<std::uint32_t>(requests_.size()); }
    [[nodiscard]] std::uint32_t buffered() const noexcept;  ///< answered and not yet taken
    [[nodiscard]] std::uint64_t held_bytes() const noexcept { return held_bytes_; }
    [[nodiscard]] const SchedulerCounters& counters() const noexcept { return counters_; }
    [[nodiscard]] const LatencyWindow& latencies() const noexcept { return latencies_; }
    [[nodiscard]] bool done() const noexcept { return next_release_ >= options_.end; }

  private:
    struct Item {  // a micro-batch between its first issue and its release
        enum class State { fetching, backing_off, ready, delivered };
        State state = State::fetching;
        std::vector<RequestId> requests;  // in flight for it: one, or two when hedged
        std::uint32_t attempts = 0;       // first request and retries, without hedges
        Instant retry_at;
        std::uint32_t avoid_endpoint = kNoEndpoint;
        RequestId winner = 0;
        std::uint64_t bytes = 0;
        FailureKind last_failure = FailureKind::connection;
        RequestId last_request = 0;
    };
    struct Request {
        std::uint64_t micro_batch = 0;
        std::uint32_t endpoint = 0;
        Instant issued;
        bool hedge = false;
    };

    static constexpr std::uint32_t kNoEndpoint = ~std::uint32_t{0};

    void issue(std::uint64_t n, Item& item, std::uint32_t endpoint, bool hedge, Instant now,
               std::vector<SchedulerAction>& out);
    void issue_retries(Instant now, std::vector<SchedulerAction>& out);
    void issue_new(Instant now, std::vector<SchedulerAction>& out);
    void issue_hedges(Instant now, bool slots_are_spare, std::vector<SchedulerAction>& out);
    void deliver(std::vector<SchedulerAction>& out);
    [[nodiscard]] bool slot_free() const noexcept { return in_flight() < controller_.limit(); }
    [[nodiscard]] bool room_for_another() const noexcept;
    [[nodiscard]] std::optional<Nanos> hedge_after() const;
    [[nodiscard]] Nanos backoff(std::uint32_t attempts);
    std::optional<Request> forget(RequestId request);

    SchedulerOptions options_;
    LimitController controller_;
    EndpointHealth endpoints_;
    LatencyWindow latencies_;
    std::map<std::uint64_t, Item> items_;  // by micro-batch, from next_release_ on
    std::map<RequestId, Request> requests_;
    std::set<RequestId> to_cancel_;
    std::vector<GiveUpAction> given_up_;
    std::uint64_t next_issue_;
    std::uint64_t next_deliver_;
    std::uint64_t next_take_;
    std::uint64_t next_release_;
    RequestId next_request_ = 1;
    std::uint64_t held_bytes_ = 0;
    std::uint64_t max_answer_;
    double hedge_tokens_;
    SplitMix64 jitter_;
    std::optional<Instant> wanted_since_;
    Instant taken_at_;
    Nanos last_busy_{0};
    bool full_while_waiting_ = false;
    SchedulerCounters counters_;
};

}  // namespace distilld
