#include "pipeline/core/scheduling/endpoint_health.hpp"

#include <algorithm>
#include <limits>

namespace distilld {

namespace {

constexpr double kLatencyWeight = 0.2;
constexpr double kLastResort = 1e300;  // seconds; above any cost

}  // namespace

EndpointHealth::EndpointHealth(std::uint32_t endpoints, BreakerOptions options, std::uint32_t ceiling)
    : options_(options), ceiling_(ceiling), endpoints_(std::max<std::uint32_t>(1, endpoints)) {
    for (Endpoint& endpoint : endpoints_) {
        endpoint.cooldown = options_.cooldown;
    }
}

bool EndpointHealth::available(const Endpoint& endpoint, Instant now) {
    if (now < endpoint.hold_until) {
        return false;
    }
    if (!endpoint.open) {
        return endpoint.limit.admits(endpoint.in_flight);
    }
    return !endpoint.probing && now >= endpoint.open_until;
}

std::optional<std::uint32_t> EndpointHealth::pick(Instant now, std::uint32_t avoid, Probing probing) const {
    std::optional<std::uint32_t> best;
    double best_cost = std::numeric_limits<double>::infinity();
    double known = 0;
    std::uint32_t measured = 0;
    for (const Endpoint& endpoint : endpoints_) {
        if (endpoint.latency_seconds > 0) {
            known += endpoint.latency_seconds;
            ++measured;
        }
    }
    const double assumed = measured > 0 ? known / measured : 1.0;
    for (std::uint32_t i = 0; i < endpoints_.size(); ++i) {
        const Endpoint& endpoint = endpoints_[i];
        if (!available(endpoint, now)) {
            continue;
        }
        // Requests in flight in proportion to 1/latency, following Little's law.
        double cost = (endpoint.in_flight + 1) * (endpoint.latency_seconds > 0 ? endpoint.latency_seconds : assumed);
        const bool overlooked = endpoint.in_flight == 0 && issued_ - endpoint.last_issue >= options_.explore_every;
        if (endpoint.open || overlooked) {
            cost = probing == Probing::welcome ? 0 : kLastResort;  // a probe, or a new measurement of a slow endpoint
        }
        if (i == avoid) {
            cost = std::numeric_limits<double>::max();
        }
        if (cost < best_cost) {
            best_cost = cost;
            best = i;
        }
    }
    return best;
}

std::optional<Instant> EndpointHealth::next_available(Instant now) const {
    std::optional<Instant> next;
    for (const Endpoint& endpoint : endpoints_) {
        const Instant at = std::max(endpoint.open ? endpoint.open_until : Instant{}, endpoint.hold_until);
        if (!endpoint.probing && at > now && (!next || at < *next)) {
            next = at;
        }
    }
    return next;
}

void EndpointHealth::on_absent(std::uint32_t endpoint, Instant now) {
    open(endpoints_[endpoint], now);
}

void EndpointHealth::open(Endpoint& endpoint, Instant now) const {
    endpoint.open = true;
    endpoint.probing = false;
    endpoint.opened_at = now;
    endpoint.open_until = now + endpoint.cooldown;
}

void EndpointHealth::open_again(Endpoint& endpoint, Instant now) const {
    endpoint.cooldown = std::min(endpoint.cooldown * 2, options_.max_cooldown);
    open(endpoint, now);
}

void EndpointHealth::hold(Endpoint& endpoint, Instant now, Nanos retry_after) const {
    const Instant until = now + std::min(retry_after, options_.max_hold);
    endpoint.hold_since = now;
    endpoint.hold_until = std::max(endpoint.hold_until, until);
}

void EndpointHealth::on_issued(std::uint32_t endpoint, Instant now) {
    Endpoint& e = endpoints_[endpoint];
    ++e.in_flight;
    e.last_issue = ++issued_;
    e.probing = e.open;
    if (e.open) {
        e.opened_at = std::min(e.opened_at, now - Nanos(1));  // not a straggler, even if no time has passed
    }
}

void EndpointHealth::measure(Endpoint& endpoint, Nanos latency) {
    double& mean = endpoint.latency_seconds;
    const double seconds = to_seconds(latency);
    mean = mean > 0 ? mean + kLatencyWeight * (seconds - mean) : seconds;
}

void EndpointHealth::on_success(std::uint32_t endpoint, Instant issued, Instant now) {
    Endpoint& e = endpoints_[endpoint];
    measure(e, std::max(now - issued, Nanos(1)));
    e.limit.on_success(e.in_flight, ceiling_);
    --e.in_flight;
    if (issued > e.hold_since) {
        e.hold_until = {};
    }
    if (is_straggler(e, issued)) {
        return;
    }
    e.failures_in_row = 0;
    e.serving = true;
    e.rejecting = false;
    e.open = false;
    e.probing = false;
    e.cooldown = options_.cooldown;
}

FailureVerdict EndpointHealth::reject(Endpoint& e, Instant issued, Instant now) const {
    e.rejecting = true;
    if (is_straggler(e, issued)) {
        return {false, true};
    }
    const bool opened = !e.open;
    e.cooldown = options_.max_cooldown;
    open(e, now);
    return {opened, true};
}

FailureVerdict EndpointHealth::on_failure(std::uint32_t endpoint, FailureKind kind, Instant issued, Instant now,
                                          std::optional<Nanos> retry_after) {
    Endpoint& e = endpoints_[endpoint];
    const std::uint32_t in_flight = e.in_flight--;
    if (retry_after) {
        hold(e, now, *retry_after);
    }
    if (kind == FailureKind::rejected || (kind == FailureKind::not_found && e.serving)) {
        return reject(e, issued, now);
    }
    const bool outage = is_outage(kind);
    if (is_straggler(e, issued)) {
        return {false, !outage};
    }
    e.rejecting = false;
    if (outage && kind != FailureKind::overloaded) {
        e.serving = false;  // it may have restarted, and then a 404 means that it loads its model
    }
    if (e.open) {
        open_again(e, now);
        return {false, !outage};
    }
    bool counts = true;
    if (kind == FailureKind::overloaded || kind == FailureKind::timeout) {
        const bool new_complaint = e.limit.on_overload(issued, in_flight, now);
        counts = new_complaint || kind == FailureKind::timeout;
    }
    e.failures_in_row += counts ? 1 : 0;
    if (e.failures_in_row < options_.failures) {
        return {false, !outage};
    }
    if (kind == FailureKind::overloaded || kind == FailureKind::timeout) {
        e.limit.restart();
    }
    open(e, now);
    return {true, !outage};
}

bool EndpointHealth::on_dropped(std::uint32_t endpoint, Instant issued, Instant now, bool late) {
    Endpoint& e = endpoints_[endpoint];
    --e.in_flight;
    if (const Nanos age = now - issued; to_seconds(age) > e.latency_seconds) {
        measure(e, age);
    }
    if (is_straggler(e, issued)) {
        return false;
    }
    if (e.open) {
        e.probing = false;
        if (late) {
            open_again(e, now);
        }
        return false;
    }
    e.failures_in_row += late ? 1 : 0;
    if (e.failures_in_row < options_.failures) {
        return false;
    }
    open(e, now);
    return true;
}

void EndpointHealth::on_withdrawn(std::uint32_t endpoint) {
    Endpoint& e = endpoints_[endpoint];
    --e.in_flight;
    e.probing = false;  // only an open endpoint probes, and only with this request
}

std::uint32_t EndpointHealth::open_count() const {
    return static_cast<std::uint32_t>(
        std::count_if(endpoints_.begin(), endpoints_.end(), [](const Endpoint& endpoint) { return endpoint.open; }));
}

bool EndpointHealth::all_reject() const {
    return std::all_of(endpoints_.begin(), endpoints_.end(),
                       [](const Endpoint& endpoint) { return endpoint.rejecting; });
}

std::uint32_t EndpointHealth::limit(std::uint32_t endpoint) const {
    const Endpoint& asked = endpoints_[endpoint];
    return asked.open ? 1 : asked.limit.or_ceiling(ceiling_);
}

std::uint32_t EndpointHealth::capacity() const {
    std::uint32_t sum = 0;
    for (std::uint32_t endpoint = 0; endpoint < endpoints_.size(); ++endpoint) {
        sum += limit(endpoint);
        if (sum >= ceiling_) {
            return ceiling_;
        }
    }
    return sum;
}

}  // namespace distilld
