#include "pipeline/core/prefetch_scheduler.hpp"

#include <algorithm>
#include <cmath>

namespace distilld {

PrefetchScheduler::PrefetchScheduler(SchedulerOptions options)
    : options_(options),
      controller_(options_.limit),
      endpoints_(options_.endpoints, options_.breaker),
      next_issue_(options_.first),
      next_deliver_(options_.first),
      next_take_(options_.first),
      next_release_(options_.first),
      max_answer_(options_.expected_bytes),
      hedge_tokens_(options_.hedge.burst),
      jitter_(options_.jitter_seed) {}

std::uint32_t PrefetchScheduler::window() const noexcept {
    return options_.window > 0 ? options_.window : 4 * controller_.limit();
}

std::uint32_t PrefetchScheduler::buffered() const noexcept {
    std::uint32_t count = 0;
    for (const auto& [n, item] : items_) {
        if (n >= next_take_ && (item.state == Item::State::ready || item.state == Item::State::delivered)) {
            ++count;
        }
    }
    return count;
}

void PrefetchScheduler::set_ceiling(std::uint32_t ceiling) {
    controller_.set_ceiling(ceiling);
}

void PrefetchScheduler::on_endpoint_absent(std::uint32_t endpoint, Instant now) {
    endpoints_.on_absent(endpoint, now);
}

std::optional<PrefetchScheduler::Request> PrefetchScheduler::forget(RequestId request) {
    const auto found = requests_.find(request);
    if (found == requests_.end()) {
        return std::nullopt;  // cancelled before: its end is no news
    }
    const Request known = found->second;
    requests_.erase(found);
    std::erase(items_.at(known.micro_batch).requests, request);
    return known;
}

void PrefetchScheduler::on_completed(RequestId request, std::uint64_t bytes, Instant now) {
    const std::optional<Request> known = forget(request);
    if (!known) {
        return;
    }
    const Nanos latency = now - known->issued;
    latencies_.add(latency);
    endpoints_.on_success(known->endpoint, latency);
    ++counters_.completed;
    if (known->hedge) {
        ++counters_.hedge_wins;
    }
    Item& item = items_.at(known->micro_batch);
    item.state = Item::State::ready;
    item.winner = request;
    item.bytes = bytes;
    held_bytes_ += bytes;
    max_answer_ = std::max(max_answer_, bytes);
    for (const RequestId loser : item.requests) {
        to_cancel_.insert(loser);
    }
    for (const RequestId loser : to_cancel_) {
        const auto found = requests_.find(loser);
        if (found == requests_.end()) {
            continue;
        }
        endpoints_.on_dropped(found->second.endpoint, now - found->second.issued);
        requests_.erase(found);
    }
    item.requests.clear();
}

void PrefetchScheduler::on_failed(RequestId request, FailureKind kind, std::optional<Nanos> retry_after, Instant now) {
    const std::optional<Request> known = forget(request);
    if (!known) {
        return;
    }
    ++counters_.failures[kind];
    const std::optional<Instant> hold = retry_after ? std::optional(now + *retry_after) : std::nullopt;
    // The silence of an endpoint that is taken for dead anyway says nothing of load.
    const bool too_slow = kind == FailureKind::timeout && !endpoints_.is_open(known->endpoint);
    if (endpoints_.on_failure(known->endpoint, kind, now, hold)) {
        ++counters_.breaker_openings;
    }
    if (kind == FailureKind::overloaded || too_slow) {
        controller_.on_overload(known->issued, now);
    }

    Item& item = items_.at(known->micro_batch);
    item.last_failure = kind;
    item.last_request = request;
    item.avoid_endpoint = known->endpoint;
    if (!item.requests.empty()) {
        return;  // its hedge, or the request it hedged, is still under way
    }
    if (kind == FailureKind::rejected || item.attempts > options_.retry.max_retries) {
        given_up_.push_back(GiveUpAction{known->micro_batch, request, kind, item.attempts});
        return;
    }
    item.state = Item::State::backing_off;
    // A hedge that fails after the first request failed is one attempt, not two: attempts count first requests only.
    item.retry_at = now + std::max(backoff(item.attempts), retry_after.value_or(Nanos(0)));
}

Nanos PrefetchScheduler::backoff(std::uint32_t attempts) {
    // Exponential with full-range jitter in [1/2, 1]: spreads the retries of many requests that failed together.
    const std::uint32_t doublings = std::min<std::uint32_t>(attempts > 0 ? attempts - 1 : 0, 20);
    const Nanos span = std::min(options_.retry.max, options_.retry.base * (Nanos::rep{1} << doublings));
    return scaled(span, 0.5 + 0.5 * jitter_.uniform());
}

void PrefetchScheduler::on_wanted(Instant now) {
    wanted_since_ = now;
}

void PrefetchScheduler::on_taken(std::uint64_t n, Instant now) {
    next_take_ = n + 1;
    const Nanos waited = wanted_since_ ? now - *wanted_since_ : Nanos(0);
    const Nanos latency = latencies_.mean_of_last(std::max<std::size_t>(8, controller_.limit()));
    controller_.on_taken(n - options_.first, waited, last_busy_, latency, full_while_waiting_);
    wanted_since_.reset();
    full_while_waiting_ = false;
    taken_at_ = now;
}

void PrefetchScheduler::on_trained(std::uint64_t, Instant now) {
    last_busy_ = std::max(Nanos(1), now - taken_at_);
}

void PrefetchScheduler::on_released(std::uint64_t n, Instant) {
    const auto found = items_.find(n);
    if (found == items_.end()) {
        return;
    }
    held_bytes_ -= found->second.bytes;
    items_.erase(found);
    next_release_ = n + 1;
}

bool PrefetchScheduler::room_for_another() const noexcept {
    if (next_issue_ >= options_.end) {
        return false;
    }
    if (next_issue_ == next_release_) {
        return true;  // the very next one is always let through
    }
    if (next_issue_ - next_release_ >= window()) {
        return false;
    }
    if (options_.window_bytes == 0) {
        return true;
    }
    // What is under way is counted at the size of the largest answer so far.
    std::uint64_t pending = 0;
    for (const auto& [n, item] : items_) {
        if (item.state == Item::State::fetching || item.state == Item::State::backing_off) {
            ++pending;
        }
    }
    return held_bytes_ + (pending + 1) * max_answer_ <= options_.window_bytes;
}

void PrefetchScheduler::issue(std::uint64_t n, Item& item, std::uint32_t endpoint, bool hedge, Instant now,
                              std::vector<SchedulerAction>& out) {
    const RequestId id = next_request_++;
    requests_.emplace(id, Request{n, endpoint, now, hedge});
    item.requests.push_back(id);
    item.state = Item::State::fetching;
    endpoints_.on_issued(endpoint, now);
    ++counters_.requests;
    if (hedge) {
        ++counters_.hedges;
    } else {
        if (item.attempts > 0) {
            ++counters_.retries;
        }
        ++item.attempts;
    }
    out.emplace_back(IssueAction{id, n, endpoint, item.attempts - 1, hedge});
}

void PrefetchScheduler::issue_retries(Instant now, std::vector<SchedulerAction>& out) {
    for (auto& [n, item] : items_) {
        if (!slot_free()) {
            return;
        }
        if (item.state != Item::State::backing_off || item.retry_at > now) {
            continue;
        }
        const std::optional<std::uint32_t> endpoint = endpoints_.pick(now, item.avoid_endpoint);
        if (!endpoint) {
            return;
        }
        issue(n, item, *endpoint, false, now, out);
    }
}

void PrefetchScheduler::issue_new(Instant now, std::vector<SchedulerAction>& out) {
    while (slot_free() && room_for_another()) {
        const std::optional<std::uint32_t> endpoint = endpoints_.pick(now, kNoEndpoint);
        if (!endpoint) {
            return;
        }
        const std::uint64_t n = next_issue_++;
        hedge_tokens_ = std::min(options_.hedge.burst, hedge_tokens_ + options_.hedge.budget);
        issue(n, items_[n], *endpoint, false, now, out);
    }
}

std::optional<Nanos> PrefetchScheduler::hedge_after() const {
    if (!options_.hedge.enabled || latencies_.size() < options_.hedge.min_samples) {
        return std::nullopt;
    }
    return latencies_.percentile(options_.hedge.percentile);
}

void PrefetchScheduler::issue_hedges(Instant now, bool slots_are_spare, std::vector<SchedulerAction>& out) {
    const std::optional<Nanos> late = hedge_after();
    if (!late) {
        return;
    }
    // A slot that would otherwise idle costs nothing. One that another micro-batch could use is spent only on a request
    // that is late beyond doubt.
    const Nanos max_age = slots_are_spare ? *late : scaled(*late, options_.hedge.paid_factor);
    for (auto& [n, item] : items_) {  // the lowest number first: it holds up all others
        if (!slot_free() || hedge_tokens_ < 1.0) {
            return;
        }
        if (item.state != Item::State::fetching || item.requests.size() != 1) {
            continue;
        }
        const Request& first = requests_.at(item.requests.front());
        if (now - first.issued <= max_age) {
            continue;
        }
        const std::optional<std::uint32_t> endpoint = endpoints_.pick(now, first.endpoint);
        if (!endpoint) {
            return;
        }
        hedge_tokens_ -= 1.0;
        issue(n, item, *endpoint, true, now, out);
    }
}

void PrefetchScheduler::deliver(std::vector<SchedulerAction>& out) {
    for (auto found = items_.find(next_deliver_); found != items_.end() && found->second.state == Item::State::ready;
         found = items_.find(next_deliver_)) {
        found->second.state = Item::State::delivered;
        out.emplace_back(DeliverAction{next_deliver_, found->second.winner});
        ++next_deliver_;
    }
}

std::vector<SchedulerAction> PrefetchScheduler::poll(Instant now) {
    std::vector<SchedulerAction> out;
    out.reserve(to_cancel_.size() + given_up_.size());
    for (const RequestId request : to_cancel_) {
        out.emplace_back(CancelAction{request});
    }
    to_cancel_.clear();
    for (const GiveUpAction& action : given_up_) {
        out.emplace_back(action);
    }
    given_up_.clear();
    issue_retries(now, out);
    issue_hedges(now, false, out);
    issue_new(now, out);
    issue_hedges(now, true, out);
    deliver(out);
    if (wanted_since_ && in_flight() >= controller_.limit()) {
        full_while_waiting_ = true;
    }
    return out;
}

std::optional<Instant> PrefetchScheduler::next_wakeup(Instant now) const {
    std::optional<Instant> next;
    // What was due and is still there after poll() waits for something else: a slot, an endpoint, a hedge token.
    const auto earliest = [&next, now](Instant at) {
        if (at > now && (!next || at < *next)) {
            next = at;
        }
    };
    if (!slot_free()) {
        return next;  // the next event is the end of a request
    }
    bool waits_for_endpoint = room_for_another();
    const std::optional<Nanos> late = hedge_after();
    for (const auto& [n, item] : items_) {
        if (item.state == Item::State::backing_off) {
            earliest(item.retry_at);
            waits_for_endpoint = true;
        }
        if (late && hedge_tokens_ >= 1.0 && item.state == Item::State::fetching && item.requests.size() == 1) {
            earliest(requests_.at(item.requests.front()).issued + *late + Nanos(1));
        }
    }
    if (waits_for_endpoint) {
        for (const Instant at : endpoints_.wakeups()) {
            earliest(at);
        }
    }
    return next;
}

}  // namespace distilld
