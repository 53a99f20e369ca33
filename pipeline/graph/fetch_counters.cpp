#include "pipeline/graph/fetch_counters.hpp"

#include <optional>

namespace distilld {

FetchCounters fetch_counters(const PrefetchScheduler& scheduler, const EndpointTally& tally,
                             const TeacherSource* source) {
    const SchedulerCounters& seen = scheduler.counters();
    FetchCounters counters;
    counters.requests = seen.requests;
    counters.completed = seen.completed;
    counters.retries = seen.retries;
    counters.hedges = seen.hedges;
    counters.hedge_wins = seen.hedge_wins;
    for (const auto& [kind, count] : seen.failures) {
        counters.failures[to_string(kind)] = count;
    }
    counters.breaker_openings = seen.breaker_openings;
    counters.bytes_received = source != nullptr ? source->bytes_received() : 0;
    counters.head = source != nullptr ? source->head_fetch() : HeadFetchCounters();
    counters.open_endpoints = scheduler.endpoints().open_count();
    counters.concurrency = scheduler.limit();
    counters.window = scheduler.window();
    counters.in_flight = scheduler.in_flight();
    counters.buffered = scheduler.buffered();
    counters.latency_p50_seconds = to_seconds(scheduler.latencies().percentile(0.5));
    counters.latency_p95_seconds = to_seconds(scheduler.latencies().percentile(0.95));
    const EndpointHealth& health = scheduler.endpoints();
    for (std::uint32_t endpoint = 0; source != nullptr && endpoint < seen.endpoints.size(); ++endpoint) {
        EndpointCounters& one = counters.endpoints.emplace_back();
        one.endpoint = source->endpoint_name(endpoint);
        one.in_flight = health.in_flight(endpoint);
        one.limit = health.limit(endpoint);
        one.open = health.is_open(endpoint);
        one.outcomes = tally.outcomes(endpoint);
        const EndpointCounts& counts = seen.endpoints[endpoint];
        one.retries = counts.retries;
        one.hedges = counts.hedges;
        one.hedge_wins = counts.hedge_wins;
        one.breaker_openings = counts.breaker_openings;
        one.tokens = tally.tokens(endpoint);
        const WireTraffic traffic = source->traffic(endpoint);
        one.bytes_sent = traffic.bytes_sent;
        one.bytes_received = traffic.bytes_received;
        one.latency_seconds = health.latency_seconds(endpoint);
    }
    counters.store = source != nullptr ? source->store() : std::nullopt;
    return counters;
}

ConcurrencyLimits concurrency_limits(const PrefetchScheduler& scheduler) {
    ConcurrencyLimits limits;
    limits.all = scheduler.limit();
    const auto endpoints = static_cast<std::uint32_t>(scheduler.counters().endpoints.size());
    for (std::uint32_t endpoint = 0; endpoint < endpoints; ++endpoint) {
        limits.of_endpoint.push_back(scheduler.endpoints().limit(endpoint));
    }
    return limits;
}

}  // namespace distilld
