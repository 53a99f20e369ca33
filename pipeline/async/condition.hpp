#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/cancellation_state.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/intrusive/list.hpp>
#include <boost/system/system_error.hpp>
#include <chrono>
#include <tuple>
#include <utility>

#include "pipeline/async/tuple.hpp"

namespace distilld {

/// A condition variable for coroutines of one executor (a strand or a single-threaded context). Notifications are not
/// remembered: check the state, wait while it is not what you need, and check again after waking. No wake-up is lost,
/// because on one executor nothing runs between a check and a wait without a co_await between them.
class Condition {
  public:
    using TimePoint = std::chrono::steady_clock::time_point;
    static constexpr TimePoint kNever = TimePoint::max();

    explicit Condition(boost::asio::any_io_executor executor) : executor_(std::move(executor)) {}
    Condition(const Condition&) = delete;
    Condition& operator=(const Condition&) = delete;
    /// Waiters get operation_aborted, as from a destroyed I/O object.
    ~Condition() {
        while (!waiters_.empty()) {
            Waiter& waiter = waiters_.front();
            waiters_.pop_front();
            waiter.timer.cancel();
        }
    }

    /// Wakes all current waiters. They run later, never inside this call.
    void notify() {
        while (!waiters_.empty()) {
            Waiter& waiter = waiters_.front();
            waiters_.pop_front();
            waiter.notified = true;
            waiter.timer.cancel();
        }
    }

    /// Waits for the next notify(): true. False if `deadline` comes first. Throws operation_aborted if the waiting
    /// coroutine is cancelled meanwhile, even if it is notified as well. A coroutine that was cancelled before, and has
    /// turned this_coro::throw_if_cancelled off, waits like any other.
    boost::asio::awaitable<bool> wait(TimePoint deadline = kNever) {
        // The result of co_await is a view of the coroutine's state: read it at once.
        const auto state = co_await boost::asio::this_coro::cancellation_state;
        const bool was_cancelled = state.cancelled() != boost::asio::cancellation_type::none;
        Waiter waiter(executor_, deadline);
        waiters_.push_back(waiter);
        const auto waited = co_await waiter.timer.async_wait(kTuple);
        const bool cancelled = !was_cancelled && state.cancelled() != boost::asio::cancellation_type::none;
        if (cancelled || (std::get<0>(waited) && !waiter.notified)) {
            throw boost::system::system_error(boost::asio::error::operation_aborted);
        }
        co_return waiter.notified;
    }

    [[nodiscard]] const boost::asio::any_io_executor& get_executor() const noexcept { return executor_; }

  private:
    using Hook = boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;
    /// Leaves the list when its coroutine resumes, or is destroyed while waiting.
    struct Waiter : Hook {
        Waiter(const boost::asio::any_io_executor& executor, TimePoint deadline) : timer(executor, deadline) {}

        boost::asio::steady_timer timer;
        bool notified = false;
    };

    boost::asio::any_io_executor executor_;
    boost::intrusive::list<Waiter, boost::intrusive::constant_time_size<false>> waiters_;
};

}  // namespace distilld
