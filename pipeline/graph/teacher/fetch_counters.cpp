#include "pipeline/graph/teacher/fetch_counters.hpp"

#include <algorithm>
#include <iterator>
#include <optional>

namespace distilld {

namespace {

void add(std::optional<StoreCounters>& sum, const std::optional<StoreCounters>& one) {
    if (!one) {
        return;
    }
    StoreCounters& all = sum ? *sum : sum.emplace();
    all.rows += one->rows;
    all.held_rows += one->held_rows;
    all.sealed_rows += one->sealed_rows;
    all.sealed_bytes += one->sealed_bytes;
}

}  // namespace

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
    counters.alignment = source != nullptr ? source->alignment() : std::nullopt;
    return counters;
}

TeacherCounters teacher_counters(const std::string& teacher, const FetchCounters& fetch, Nanos waited) {
    TeacherCounters counters;
    counters.teacher = teacher;
    counters.wait_seconds = to_seconds(waited);
    counters.requests = fetch.requests;
    counters.completed = fetch.completed;
    for (const auto& [kind, count] : fetch.failures) {
        counters.failures += count;
    }
    for (const EndpointCounters& endpoint : fetch.endpoints) {
        counters.tokens += endpoint.tokens;
    }
    counters.bytes_received = fetch.bytes_received;
    counters.concurrency = fetch.concurrency;
    counters.window = fetch.window;
    counters.in_flight = fetch.in_flight;
    counters.buffered = fetch.buffered;
    counters.open_endpoints = fetch.open_endpoints;
    counters.latency_p50_seconds = fetch.latency_p50_seconds;
    counters.latency_p95_seconds = fetch.latency_p95_seconds;
    counters.store = fetch.store;
    return counters;
}

void add(FetchCounters& sum, FetchCounters one, bool first) {
    sum.requests += one.requests;
    sum.completed += one.completed;
    sum.retries += one.retries;
    sum.hedges += one.hedges;
    sum.hedge_wins += one.hedge_wins;
    for (const auto& [kind, count] : one.failures) {
        sum.failures[kind] += count;
    }
    sum.breaker_openings += one.breaker_openings;
    sum.bytes_received += one.bytes_received;
    sum.open_endpoints += one.open_endpoints;
    sum.concurrency += one.concurrency;
    sum.window = std::max(sum.window, one.window);
    sum.in_flight += one.in_flight;
    sum.buffered = first ? one.buffered : std::min(sum.buffered, one.buffered);
    sum.latency_p50_seconds = std::max(sum.latency_p50_seconds, one.latency_p50_seconds);
    sum.latency_p95_seconds = std::max(sum.latency_p95_seconds, one.latency_p95_seconds);
    std::ranges::move(one.endpoints, std::back_inserter(sum.endpoints));
    add(sum.store, one.store);
    sum.alignment = one.alignment ? one.alignment : sum.alignment;  // only a single teacher has some
    sum.head.bytes += one.head.bytes;
    sum.head.seconds += one.head.seconds;
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
