#include "pipeline/core/scheduling/prefetch_scheduler.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace distilld {

PrefetchScheduler::PrefetchScheduler(SchedulerOptions options)
    : options_(options),
      controller_(options_.limit),
      endpoints_(options_.endpoints, options_.breaker, options_.limit.ceiling),
      window_(options_.window),
      outage_timeout_(options_.retry.outage_timeout),
      next_issue_(options_.first),
      next_deliver_(options_.first),
      next_take_(options_.first),
      next_release_(options_.first),
      hedge_tokens_(options_.hedge.burst),
      jitter_(options_.jitter_seed) {
    counters_.endpoints.resize(options_.endpoints);
}

std::uint32_t PrefetchScheduler::buffered() const noexcept {
    return static_cast<std::uint32_t>(answered_ - (next_take_ - options_.first));
}

void PrefetchScheduler::set_end(std::uint64_t end, bool last) {
    options_.end = std::max(options_.end, end);
    options_.growing = options_.growing && !last;
}

void PrefetchScheduler::set_ceiling(std::uint32_t ceiling) {
    controller_.set_ceiling(ceiling);
    endpoints_.set_ceiling(ceiling);
}

void PrefetchScheduler::on_endpoint_absent(std::uint32_t endpoint, Instant now) {
    endpoints_.on_absent(endpoint, now);
}

std::optional<PrefetchScheduler::Request> PrefetchScheduler::forget(RequestId request) {
    const auto found = requests_.find(request);
    if (found == requests_.end()) {
        return std::nullopt;  // already cancelled
    }
    Request known = found->second;
    requests_.erase(found);
    if (known.place) {
        unhedged_.erase(*known.place);
        known.place.reset();
    }
    for (RequestId& of_item : item(known.micro_batch).requests) {
        of_item = of_item == request ? 0 : of_item;
    }
    return known;
}

/// The request, now the only one of its micro-batch, becomes a candidate for a hedge.
void PrefetchScheduler::watch(RequestId request, Request& known) {
    const bool oldest = !unhedged_.empty() && known.issued < requests_.at(unhedged_.front()).issued;
    known.place = unhedged_.insert(oldest ? unhedged_.begin() : unhedged_.end(), request);
}

void PrefetchScheduler::count_opening(std::uint32_t endpoint) {
    ++counters_.breaker_openings;
    ++counters_.endpoints[endpoint].breaker_openings;
}

void PrefetchScheduler::drop(RequestId request, Instant now) {
    if (const std::optional<Request> loser = forget(request)) {
        if (endpoints_.on_dropped(loser->endpoint, loser->issued, now, !loser->hedge)) {
            count_opening(loser->endpoint);
        }
        to_cancel_.push_back(request);
    }
}

void PrefetchScheduler::on_completed(RequestId request, AnswerBytes bytes, Instant now) {
    const std::optional<Request> known = forget(request);
    if (!known) {
        return;
    }
    latencies_.add(now - known->issued);
    endpoints_.on_success(known->endpoint, known->issued, now);
    outage_timeout_.on_answer();
    window_.on_answer(bytes);
    ++counters_.completed;
    ++answered_;
    if (known->hedge) {
        ++counters_.hedge_wins;
        ++counters_.endpoints[known->endpoint].hedge_wins;
    }
    Item& of = item(known->micro_batch);
    of.state = Item::State::ready;
    of.winner = request;
    of.bytes = bytes.held;
    drop(of.any_request(), now);
}

bool PrefetchScheduler::on_nothing_to_ask(RequestId request, Instant now) {
    const std::optional<Request> known = forget(request);
    if (!known) {
        return false;
    }
    endpoints_.on_withdrawn(known->endpoint);
    ++answered_;
    Item& of = item(known->micro_batch);
    of.state = Item::State::ready;
    of.winner = request;
    drop(of.any_request(), now);
    return true;
}

void PrefetchScheduler::on_failed(RequestId request, FailureKind kind, std::optional<Nanos> retry_after, Instant now) {
    const std::optional<Request> known = forget(request);
    if (!known) {
        return;
    }
    ++counters_.failures[kind];
    last_failure_ = LastFailure{request, kind};
    outage_timeout_.on_failure(now);
    const FailureVerdict verdict = endpoints_.on_failure(known->endpoint, kind, known->issued, now, retry_after);
    if (verdict.opened) {
        count_opening(known->endpoint);
    }
    Item& of = item(known->micro_batch);
    of.avoid_endpoint = known->endpoint;
    if (const RequestId other = of.any_request(); other != 0) {
        watch(other, requests_.at(other));
        return;  // its hedge, or the request it hedged, is still in flight
    }
    // A hedge that fails after the first request failed is one attempt, not two.
    ++of.failures;
    of.spent += verdict.spends_attempt ? 1 : 0;
    if (of.spent > options_.retry.max_retries || endpoints_.all_reject()) {
        given_up_.push_back(GiveUpAction{known->micro_batch, request, kind, of.issues, Nanos(0)});
        return;
    }
    of.state = Item::State::backing_off;
    retries_.add(known->micro_batch, retry_at(of, verdict.spends_attempt, now));
}

Instant PrefetchScheduler::retry_at(const Item& of, bool spends_attempt, Instant now) {
    if (spends_attempt) {
        return now + backoff(of.failures);
    }
    const std::optional<std::uint32_t> other =
        endpoints_.pick(now, of.avoid_endpoint, EndpointHealth::Probing::last_resort);
    if (other && *other != of.avoid_endpoint) {
        return now;
    }
    // The breaker protects a dead endpoint; after the outage, no retry should wait for long.
    return now + std::min(backoff(of.failures), options_.breaker.cooldown);
}

Nanos PrefetchScheduler::backoff(std::uint32_t failures) {
    // Exponential with full-range jitter in [1/2, 1]: spreads the retries of many requests that failed together.
    const std::uint32_t doublings = std::min<std::uint32_t>(failures > 0 ? failures - 1 : 0, 20);
    const Nanos span = std::min(options_.retry.max, options_.retry.base * (Nanos::rep{1} << doublings));
    return scaled(span, 0.5 + 0.5 * jitter_.uniform());
}

void PrefetchScheduler::on_wanted(Instant now) {
    if (!options_.one_of_several || next_take_ >= next_deliver_) {
        wanted_since_ = now;
    }
}

void PrefetchScheduler::end_wait(Instant now) {
    waited_ = waited(now);
    wanted_since_.reset();
}

void PrefetchScheduler::on_taken(std::uint64_t n, Instant now) {
    next_take_ = n + 1;
    end_wait(now);
    const Nanos waited = waited_ - waited_at_last_take_;
    waited_at_last_take_ = waited_;
    const Nanos latency = latencies_.mean_of_last(std::max<std::size_t>(8, controller_.limit()));
    controller_.on_taken(n - options_.first, waited, last_busy_, latency, latencies_.percentile(0),
                         full_while_waiting_);
    full_while_waiting_ = false;
    taken_at_ = now;
}

void PrefetchScheduler::on_trained(std::uint64_t, Instant now) {
    last_busy_ = std::max(Nanos(1), now - taken_at_);
}

void PrefetchScheduler::on_released(std::uint64_t n, Instant) {
    if (n != next_release_ || n >= next_deliver_) {
        return;  // only what was delivered can be released
    }
    window_.on_released(items_.front().bytes);
    items_.pop_front();
    next_release_ = n + 1;
}

bool PrefetchScheduler::has_bytes_for_another() const noexcept {
    // Micro-batches that wait for a retry will need their bytes again.
    return next_issue_ == next_release_ || window_.has_bytes_for_another(in_flight() + retries_.size());
}

bool PrefetchScheduler::room_for_another() const noexcept {
    if (next_issue_ >= options_.end) {
        return false;
    }
    if (next_issue_ == next_release_) {
        return true;  // the next micro-batch is always allowed
    }
    return next_issue_ - next_release_ < window() && has_bytes_for_another();
}

/// Slots are idle because the window is full, and because the oldest answer is late. The student is not the cause:
/// fewer than 2C delivered micro-batches are left for it.
bool PrefetchScheduler::held_up_by_the_oldest() const {
    if (next_issue_ >= options_.end || next_issue_ - next_release_ < window() || !has_bytes_for_another()) {
        return false;
    }
    if (next_deliver_ >= next_issue_ || next_deliver_ - next_take_ >= 2 * controller_.limit()) {
        return false;
    }
    const Item::State oldest = item(next_deliver_).state;
    return oldest == Item::State::fetching || oldest == Item::State::backing_off;
}

void PrefetchScheduler::issue(std::uint64_t n, std::uint32_t endpoint, bool hedge, Instant now,
                              std::vector<SchedulerAction>& out) {
    const RequestId id = next_request_++;
    Item& of = item(n);
    Request& made = requests_.emplace(id, Request{n, endpoint, now, hedge, {}}).first->second;
    (of.requests[0] == 0 ? of.requests[0] : of.requests[1]) = id;
    of.state = Item::State::fetching;
    endpoints_.on_issued(endpoint, now);
    ++counters_.requests;
    if (hedge) {
        ++counters_.hedges;
        ++counters_.endpoints[endpoint].hedges;
    } else {
        watch(id, made);
        if (of.issues > 0) {
            ++counters_.retries;
            ++counters_.endpoints[endpoint].retries;
        }
        ++of.issues;
    }
    out.emplace_back(IssueAction{id, n, endpoint, of.issues - 1, hedge});
}

void PrefetchScheduler::issue_retries(Instant now, std::vector<SchedulerAction>& out) {
    while (slot_free()) {
        const std::optional<std::uint64_t> n = retries_.due(now);
        if (!n) {
            return;
        }
        // A retry is already late, so it serves as a probe, which may fail, only if no other endpoint is available.
        const std::optional<std::uint32_t> endpoint =
            endpoints_.pick(now, item(*n).avoid_endpoint, EndpointHealth::Probing::last_resort);
        if (!endpoint) {
            return;
        }
        retries_.take();
        issue(*n, *endpoint, false, now, out);
    }
}

void PrefetchScheduler::issue_new(Instant now, std::vector<SchedulerAction>& out) {
    while (slot_free()) {
        const bool room = room_for_another();
        if (!room && !held_up_by_the_oldest()) {
            return;
        }
        const std::optional<std::uint32_t> endpoint =
            endpoints_.pick(now, kNoEndpoint, EndpointHealth::Probing::welcome);
        if (!endpoint || (!room && !window_.grow(controller_.limit() - in_flight(), controller_.limit()))) {
            return;
        }
        const std::uint64_t n = next_issue_++;
        items_.emplace_back();
        hedge_tokens_ = std::min(options_.hedge.burst, hedge_tokens_ + options_.hedge.budget);
        issue(n, *endpoint, false, now, out);
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
    // An idle slot costs nothing. A slot that another micro-batch could use is spent only on a request that is late
    // beyond doubt.
    const Nanos max_age = slots_are_spare ? *late : scaled(*late, options_.hedge.paid_factor);
    while (slot_free() && hedge_tokens_ >= 1.0 && !unhedged_.empty() && has_bytes_for_another()) {
        Request& first = requests_.at(unhedged_.front());
        if (now - first.issued <= max_age) {
            return;
        }
        const std::optional<std::uint32_t> endpoint =
            endpoints_.pick(now, first.endpoint, EndpointHealth::Probing::last_resort);
        if (!endpoint) {
            return;
        }
        hedge_tokens_ -= 1.0;
        unhedged_.erase(*first.place);
        first.place.reset();
        const std::uint64_t n = first.micro_batch;
        issue(n, *endpoint, true, now, out);
    }
}

void PrefetchScheduler::deliver(Instant now, std::vector<SchedulerAction>& out) {
    while (next_deliver_ < next_issue_ && item(next_deliver_).state == Item::State::ready) {
        if (options_.one_of_several && next_deliver_ == next_take_) {
            end_wait(now);
        }
        Item& oldest = item(next_deliver_);
        oldest.state = Item::State::delivered;
        out.emplace_back(DeliverAction{next_deliver_, oldest.winner});
        ++next_deliver_;
    }
}

void PrefetchScheduler::give_up_after_outage(Instant now, std::vector<SchedulerAction>& out) {
    const std::optional<Instant> ends = outage_timeout_.ends();
    if (held_ || outage_timed_out_ || !ends || now < *ends || next_deliver_ >= next_issue_) {
        return;
    }
    outage_timed_out_ = true;
    out.emplace_back(GiveUpAction{next_deliver_, last_failure_->request, last_failure_->kind,
                                  item(next_deliver_).issues, now - *outage_timeout_.silent_since()});
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
    deliver(now, out);
    give_up_after_outage(now, out);
    if (wanted_since_ && !held_ && !slot_free()) {
        full_while_waiting_ = true;
    }
    return out;
}

std::optional<Instant> PrefetchScheduler::next_wakeup(Instant now) const {
    std::optional<Instant> next;
    // Anything still due after poll() waits for something else: a slot, an endpoint, a hedge token.
    const auto earliest = [&next, now](std::optional<Instant> at) {
        if (at && *at > now && (!next || *at < *next)) {
            next = at;
        }
    };
    earliest(outage_timeout_.ends());
    if (!slot_free()) {
        return next;  // the next event is the end of a request
    }
    if (retries_.size() > 0 && endpoints_.pick(now, kNoEndpoint, EndpointHealth::Probing::welcome)) {
        earliest(retries_.next_due());
    }
    if (!unhedged_.empty() && hedge_tokens_ >= 1.0) {
        if (const std::optional<Nanos> late = hedge_after()) {
            earliest(requests_.at(unhedged_.front()).issued + *late + Nanos(1));
        }
    }
    if (retries_.size() > 0 || room_for_another() || held_up_by_the_oldest()) {
        earliest(endpoints_.next_available(now));
    }
    return next;
}

}  // namespace distilld
