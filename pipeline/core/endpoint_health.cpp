#include "pipeline/core/endpoint_health.hpp"

#include <algorithm>
#include <limits>

namespace distilld {

namespace {

constexpr double kLatencyWeight = 0.2;

}  // namespace

EndpointHealth::EndpointHealth(std::uint32_t endpoints, BreakerOptions options)
    : options_(options), endpoints_(std::max<std::uint32_t>(1, endpoints)) {
    for (Endpoint& endpoint : endpoints_) {
        endpoint.cooldown = options_.cooldown;
    }
}

bool EndpointHealth::available(const Endpoint& endpoint, Instant now) const {
    if (now < endpoint.hold_until) {
        return false;
    }
    if (!endpoint.open) {
        return true;
    }
    return !endpoint.probing && now >= endpoint.open_until;
}

std::optional<std::uint32_t> EndpointHealth::pick(Instant now, std::uint32_t avoid) const {
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
        // In flight in proportion to 1/latency: what Little's law gives endpoints of different speed.
        double cost = (endpoint.in_flight + 1) * (endpoint.latency_seconds > 0 ? endpoint.latency_seconds : assumed);
        const bool overlooked = endpoint.in_flight == 0 && issued_ - endpoint.last_issue >= options_.explore_every;
        if (endpoint.open || overlooked) {
            cost = 0;  // a probe, or a slow endpoint measured anew
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

std::vector<Instant> EndpointHealth::wakeups() const {
    std::vector<Instant> times;
    for (const Endpoint& endpoint : endpoints_) {
        if (endpoint.probing) {
            continue;
        }
        times.push_back(std::max(endpoint.open ? endpoint.open_until : Instant{}, endpoint.hold_until));
    }
    return times;
}

void EndpointHealth::on_absent(std::uint32_t endpoint, Instant now) {
    open(endpoints_[endpoint], now);
}

void EndpointHealth::open(Endpoint& endpoint, Instant now) {
    endpoint.open = true;
    endpoint.open_until = now + endpoint.cooldown;
}

void EndpointHealth::on_issued(std::uint32_t endpoint, Instant now) {
    Endpoint& e = endpoints_[endpoint];
    ++e.in_flight;
    e.last_issue = ++issued_;
    if (e.open && now >= e.open_until) {
        e.probing = true;
    }
}

void EndpointHealth::measure(Endpoint& endpoint, Nanos latency) {
    double& mean = endpoint.latency_seconds;
    const double seconds = to_seconds(latency);
    mean = mean > 0 ? mean + kLatencyWeight * (seconds - mean) : seconds;
}

void EndpointHealth::on_success(std::uint32_t endpoint, Nanos latency) {
    Endpoint& e = endpoints_[endpoint];
    --e.in_flight;
    measure(e, std::max(latency, Nanos(1)));
    e.failures_in_row = 0;
    e.open = false;
    e.probing = false;
    e.cooldown = options_.cooldown;
    e.hold_until = {};
}

bool EndpointHealth::on_failure(std::uint32_t endpoint, FailureKind kind, Instant now,
                                std::optional<Instant> hold_until) {
    Endpoint& e = endpoints_[endpoint];
    --e.in_flight;
    if (hold_until) {
        e.hold_until = std::max(e.hold_until, *hold_until);
    }
    // An endpoint that says it is busy is alive: concurrency backs off instead.
    if (kind == FailureKind::overloaded) {
        e.probing = false;
        return false;
    }
    ++e.failures_in_row;
    if (e.open) {
        if (!e.probing) {
            return false;  // a straggler of the time before it opened
        }
        e.probing = false;
        e.cooldown = std::min(e.cooldown * 2, options_.max_cooldown);
        open(e, now);
        return false;
    }
    if (e.failures_in_row < options_.failures) {
        return false;
    }
    open(e, now);
    return true;
}

void EndpointHealth::on_dropped(std::uint32_t endpoint, Nanos age) {
    Endpoint& e = endpoints_[endpoint];
    --e.in_flight;
    e.probing = false;
    if (to_seconds(age) > e.latency_seconds) {
        measure(e, age);
    }
}

}  // namespace distilld
