#include "pipeline/teacher/request_slots.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "pipeline/async/condition.hpp"

namespace distilld {

namespace asio = boost::asio;

/// A woken waiter has its slot already: if it is cancelled before it resumes, the slot goes on to the next.
struct RequestSlots::Waiter {
    Waiter(RequestSlots& the_slots, std::size_t of_endpoint)
        : slots(the_slots),
          endpoint(of_endpoint),
          turn(slots.executor_),
          place(slots.waiting_.insert(slots.waiting_.end(), this)) {}
    ~Waiter() {
        if (!slot) {
            slots.waiting_.erase(place);
        }
    }
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;

    RequestSlots& slots;
    std::size_t endpoint;
    Condition turn;
    std::list<Waiter*>::iterator place;  // until it has a slot
    std::optional<Slot> slot;
};

RequestSlots::Slot::Slot(RequestSlots& slots, std::size_t endpoint) : slots_(&slots), endpoint_(endpoint) {
    ++slots.in_flight_;
    ++slots.of(endpoint);
}

RequestSlots::Slot::Slot(Slot&& other) noexcept
    : slots_(std::exchange(other.slots_, nullptr)), endpoint_(other.endpoint_) {}

RequestSlots::Slot::~Slot() {
    if (slots_ != nullptr) {
        --slots_->in_flight_;
        --slots_->of(endpoint_);
        slots_->hand_out();
    }
}

RequestSlots::RequestSlots(asio::any_io_executor executor, ConcurrencyLimits limits)
    : executor_(std::move(executor)), limits_(std::move(limits)) {}

asio::awaitable<RequestSlots::Slot> RequestSlots::take(std::size_t endpoint) {
    if (has_room(endpoint)) {
        co_return Slot(*this, endpoint);
    }
    Waiter waiter(*this, endpoint);
    while (!waiter.slot) {
        co_await waiter.turn.wait();
    }
    co_return std::move(*waiter.slot);
}

void RequestSlots::set_limits(ConcurrencyLimits limits) {
    limits_ = std::move(limits);
    hand_out();
}

std::uint32_t& RequestSlots::of(std::size_t endpoint) {
    if (endpoint >= of_endpoint_.size()) {
        of_endpoint_.resize(endpoint + 1, 0);
    }
    return of_endpoint_[endpoint];
}

bool RequestSlots::has_room() const {
    return in_flight_ < std::max(1U, limits_.all);
}

bool RequestSlots::has_room(std::size_t endpoint) {
    const bool known = endpoint < limits_.of_endpoint.size();
    return has_room() && of(endpoint) < std::max(1U, known ? limits_.of_endpoint[endpoint] : limits_.all);
}

void RequestSlots::hand_out() {
    for (auto next = waiting_.begin(); next != waiting_.end() && has_room();) {
        Waiter& waiter = **next;
        if (has_room(waiter.endpoint)) {
            next = waiting_.erase(next);
            waiter.slot.emplace(Slot(*this, waiter.endpoint));
            waiter.turn.notify();
        } else {
            ++next;
        }
    }
}

}  // namespace distilld
