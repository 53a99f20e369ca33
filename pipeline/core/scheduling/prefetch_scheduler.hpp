#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/random.hpp"
#include "base/time.hpp"
#include "pipeline/core/scheduling/endpoint_health.hpp"
#include "pipeline/core/scheduling/fetch_failure.hpp"
#include "pipeline/core/scheduling/latency_window.hpp"
#include "pipeline/core/scheduling/limit_controller.hpp"
#include "pipeline/core/scheduling/outage_timeout.hpp"
#include "pipeline/core/scheduling/prefetch_window.hpp"
#include "pipeline/core/scheduling/retry_queue.hpp"

namespace distilld {

using RequestId = std::uint64_t;

struct RetryPolicy {
    /// Further attempts of one micro-batch after the first. Outages (is_outage) use none.
    std::uint32_t max_retries = 8;
    Nanos base = std::chrono::milliseconds(100);
    Nanos max = std::chrono::seconds(30);
    Nanos outage_timeout = std::chrono::seconds(1800);  ///< without an answer from any endpoint; 0 = no limit
};

struct HedgePolicy {
    bool enabled = true;
    double percentile = 0.95;  ///< a request older than this percentile is late
    double paid_factor = 2.0;  ///< late by this factor: hedged even if that takes a slot from others
    double budget = 0.1;       ///< hedges earned per first request (token bucket)
    double burst = 4.0;        ///< size of the bucket
    std::uint32_t min_samples = 8;
};

struct SchedulerOptions {
    std::uint64_t first = 0;  ///< micro-batches [first, end)
    std::uint64_t end = 0;
    bool growing = false;  ///< `end` is not the last yet: see set_end()
    std::uint32_t endpoints = 1;
    LimitOptions limit;    ///< C: requests in flight, over all endpoints
    WindowOptions window;  ///< W: micro-batches issued and not yet released
    RetryPolicy retry;
    HedgePolicy hedge;
    BreakerOptions breaker;
    std::uint64_t jitter_seed = 1;
    /// Other teachers answer for the same micro-batches: the student's wait counts for this one only until its rows are
    /// delivered.
    bool one_of_several = false;
};

/// Send a request for `micro_batch` to `endpoint`.
struct IssueAction {
    RequestId request = 0;
    std::uint64_t micro_batch = 0;
    std::uint32_t endpoint = 0;
    std::uint32_t attempt = 0;  ///< 0 = first
    bool hedge = false;
};
/// Drop a request that is no longer needed. Its slot is free at once; its later events are ignored.
struct CancelAction {
    RequestId request = 0;
};
/// The answer `request` of `micro_batch` is next; emitted in micro-batch order.
struct DeliverAction {
    std::uint64_t micro_batch = 0;
    RequestId request = 0;
};
/// `micro_batch` has failed: no attempts left, every endpoint rejects, or the outage lasted too long.
struct GiveUpAction {
    std::uint64_t micro_batch = 0;
    RequestId request = 0;  ///< the last one that failed
    FailureKind kind = FailureKind::connection;
    std::uint32_t attempts = 0;  ///< in total
    Nanos silence{0};            ///< length of an outage that lasted too long; 0 = another reason
};
using SchedulerAction = std::variant<IssueAction, CancelAction, DeliverAction, GiveUpAction>;

/// Counts of requests to one endpoint.
struct EndpointCounts {
    std::uint64_t retries = 0;
    std::uint64_t hedges = 0;
    std::uint64_t hedge_wins = 0;
    std::uint64_t breaker_openings = 0;
};

struct SchedulerCounters {
    std::uint64_t requests = 0;  ///< issued, including retries and hedges
    std::uint64_t completed = 0;
    std::uint64_t retries = 0;
    std::uint64_t hedges = 0;
    std::uint64_t hedge_wins = 0;
    std::map<FailureKind, std::uint64_t> failures;
    std::uint64_t breaker_openings = 0;
    std::vector<EndpointCounts> endpoints{};  ///< one per endpoint
};

/// Decides when each teacher request is made: out-of-order completion, in-order release, retries, hedges, breakers and
/// limits of endpoints, adaptive concurrency, timeouts of outages. A pure state machine: events in, actions out, time
/// as an argument. It has no clock, no thread and no I/O, so the simulation drives the service's own code. An event and
/// the poll() after it take O(log W) and a walk over the endpoints.
///
/// An outage (see is_outage) costs time but no attempts: the micro-batch goes to another endpoint at once if one has
/// capacity, or else is requested again at most one breaker cooldown later.
///
/// After each event, call poll() and perform the actions; call it again at next_wakeup().
class PrefetchScheduler {
  public:
    explicit PrefetchScheduler(SchedulerOptions options);

    // Events.
    /// `request` was answered with this many bytes.
    void on_completed(RequestId request, AnswerBytes bytes, Instant now);
    void on_failed(RequestId request, FailureKind kind, std::optional<Nanos> retry_after, Instant now);
    /// This teacher has no rows in the micro-batch of `request`, so it counts as answered without a measurement. False
    /// if the request was already cancelled.
    bool on_nothing_to_ask(RequestId request, Instant now);
    /// The student is idle and wants its next micro-batch.
    void on_wanted(Instant now);
    /// The student took micro-batch `n` (its busy time begins).
    void on_taken(std::uint64_t n, Instant now);
    /// The student has finished micro-batch `n` (its busy time ends).
    void on_trained(std::uint64_t n, Instant now);
    /// `n`, the lowest in the window, leaves it. In parallel mode together with on_taken, in sequential mode after
    /// on_trained.
    void on_released(std::uint64_t n, Instant now);
    /// `endpoint` is known to be down: it gets only probes of its breaker until it answers.
    void on_endpoint_absent(std::uint32_t endpoint, Instant now);
    /// An operator set the ceiling: the controller stays at or below it from now on.
    void set_ceiling(std::uint32_t ceiling);
    /// While held, nothing is issued and no outage is timed; requests in flight continue.
    void set_held(bool held) noexcept { held_ = held; }
    /// Micro-batches exist up to `end`, which never decreases; with `last`, there will be no more.
    void set_end(std::uint64_t end, bool last);

    // Actions.
    [[nodiscard]] std::vector<SchedulerAction> poll(Instant now);
    /// When, after a poll() at `now`, there will be something to do without an event (a retry, a hedge, a breaker's
    /// probe, the timeout of an outage).
    [[nodiscard]] std::optional<Instant> next_wakeup(Instant now) const;

    // State.
    /// Requests that may be in flight now, within the limits of the endpoints.
    [[nodiscard]] std::uint32_t limit() const { return std::min(controller_.limit(), endpoints_.capacity()); }
    [[nodiscard]] std::uint32_t window() const noexcept { return window_.size(controller_.limit()); }
    [[nodiscard]] std::uint32_t in_flight() const noexcept { return static_cast<std::uint32_t>(requests_.size()); }
    [[nodiscard]] std::uint32_t buffered() const noexcept;  ///< answered and not yet taken
    [[nodiscard]] std::uint64_t held_bytes() const noexcept { return window_.held_bytes(); }
    [[nodiscard]] const SchedulerCounters& counters() const noexcept { return counters_; }
    [[nodiscard]] const LatencyWindow& latencies() const noexcept { return latencies_; }
    [[nodiscard]] bool done() const noexcept { return !options_.growing && next_release_ >= options_.end; }
    /// Whether more micro-batches may come, and fewer are left to issue than may be in flight at once.
    [[nodiscard]] bool short_of_batches() const { return options_.growing && options_.end < next_issue_ + limit(); }
    /// When the student began to wait for a micro-batch; nullopt if it does not wait.
    [[nodiscard]] const std::optional<Instant>& wanted_since() const noexcept { return wanted_since_; }
    /// Total wait, including the current one.
    [[nodiscard]] Nanos waited(Instant now) const noexcept {
        return waited_ + (wanted_since_ ? now - *wanted_since_ : Nanos(0));
    }
    /// Time since which there were only failures; nullopt if the last result was an answer.
    [[nodiscard]] const std::optional<Instant>& silent_since() const noexcept { return outage_timeout_.silent_since(); }
    [[nodiscard]] const EndpointHealth& endpoints() const noexcept { return endpoints_; }

  private:
    struct Item {  // a micro-batch between its first issue and its release
        enum class State { fetching, backing_off, ready, delivered };
        State state = State::fetching;
        std::array<RequestId, 2> requests{};  // in flight for it: one, or two when hedged; 0 = none
        std::uint32_t issues = 0;             // first request and retries, without hedges
        std::uint32_t failures = 0;           // in all
        std::uint32_t spent = 0;              // attempts used up by failures
        std::uint32_t avoid_endpoint = kNoEndpoint;
        RequestId winner = 0;
        std::uint64_t bytes = 0;

        [[nodiscard]] RequestId any_request() const { return requests[0] != 0 ? requests[0] : requests[1]; }
    };
    struct Request {
        std::uint64_t micro_batch = 0;
        std::uint32_t endpoint = 0;
        Instant issued;
        bool hedge = false;
        std::optional<std::list<RequestId>::iterator> place;  // in unhedged_
    };
    struct LastFailure {
        RequestId request = 0;
        FailureKind kind = FailureKind::connection;
    };

    static constexpr std::uint32_t kNoEndpoint = ~std::uint32_t{0};

    Item& item(std::uint64_t n) { return items_[n - next_release_]; }
    [[nodiscard]] const Item& item(std::uint64_t n) const { return items_[n - next_release_]; }
    void issue(std::uint64_t n, std::uint32_t endpoint, bool hedge, Instant now, std::vector<SchedulerAction>& out);
    void issue_retries(Instant now, std::vector<SchedulerAction>& out);
    void issue_new(Instant now, std::vector<SchedulerAction>& out);
    void issue_hedges(Instant now, bool slots_are_spare, std::vector<SchedulerAction>& out);
    void deliver(Instant now, std::vector<SchedulerAction>& out);
    void end_wait(Instant now);
    void give_up_after_outage(Instant now, std::vector<SchedulerAction>& out);
    [[nodiscard]] bool slot_free() const noexcept { return !held_ && in_flight() < controller_.limit(); }
    [[nodiscard]] bool has_bytes_for_another() const noexcept;
    [[nodiscard]] bool room_for_another() const noexcept;
    [[nodiscard]] bool held_up_by_the_oldest() const;
    [[nodiscard]] std::optional<Nanos> hedge_after() const;
    [[nodiscard]] Nanos backoff(std::uint32_t failures);
    [[nodiscard]] Instant retry_at(const Item& item, bool spends_attempt, Instant now);
    std::optional<Request> forget(RequestId request);
    void watch(RequestId request, Request& known);
    void count_opening(std::uint32_t endpoint);
    void drop(RequestId request, Instant now);

    SchedulerOptions options_;
    LimitController controller_;
    EndpointHealth endpoints_;
    LatencyWindow latencies_;
    PrefetchWindow window_;
    OutageTimeout outage_timeout_;
    RetryQueue retries_;
    std::deque<Item> items_;  // of micro-batches [next_release_, next_issue_)
    std::unordered_map<RequestId, Request> requests_;
    std::list<RequestId> unhedged_;  // candidates for hedges: the only request of its micro-batch, oldest first
    std::vector<RequestId> to_cancel_;
    std::vector<GiveUpAction> given_up_;
    std::optional<LastFailure> last_failure_;
    std::uint64_t next_issue_;
    std::uint64_t next_deliver_;
    std::uint64_t next_take_;
    std::uint64_t next_release_;
    std::uint64_t answered_ = 0;  // micro-batches
    RequestId next_request_ = 1;
    double hedge_tokens_;
    SplitMix64 jitter_;
    std::optional<Instant> wanted_since_;
    Nanos waited_{0};
    Nanos waited_at_last_take_{0};
    Instant taken_at_;
    Nanos last_busy_{0};
    bool full_while_waiting_ = false;
    bool outage_timed_out_ = false;
    bool held_ = false;
    SchedulerCounters counters_;
};

}  // namespace distilld
