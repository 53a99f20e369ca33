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

/// What coroutines of one executor (a strand or a single-threaded context) wait on until another says that something
/// has changed. A notification is not remembered. The rule is that of every condition variable: look at the state, wait
/// only while it is not what you need, look again after waking. No wake-up is lost that way, for on one executor
/// nothing runs between a look and the wait that follows it without a co_await.
class Condition {
  public:
    using TimePoint = std::chrono::steady_clock::time_point;
    static constexpr TimePoint kNever = TimePoint::max();

    explicit Condition(boost::asio::any_io_executor executor) : executor_(std::move(executor)) {}
    Condition(const Condition&) = delete;
    Condition& operator=(const Condition&) = delete;
    /// Whoever still waits gets operation_aborted, as from an I/O object that is destroyed.
    ~Condition() {
        while (!waiters_.empty()) {
            Waiter& waiter = waiters_.front();
            waiters_.pop_front();
            waiter.timer.cancel();
        }
    }

    /// Wakes all that wait now. They run later, never inside this call.
    void notify() {
        while (!waiters_.empty()) {
            Waiter& waiter = waiters_.front();
            waiters_.pop_front();
            waiter.notified = true;
            waiter.timer.cancel();
        }
    }

    /// Waits for the next notify(): true. False when `deadline` comes first. Throws operation_aborted when the waiting
    /// coroutine is cancelled meanwhile, even if it is notified as well. One that was cancelled before and has switched
    /// this_coro::throw_if_cancelled off waits like any other.
    boost::asio::awaitable<bool> wait(TimePoint deadline = kNever) {
        // The state that co_await gives is a view of the coroutine's own: read it at once.
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
    /// Leaves the list when its coroutine goes on, or is destroyed while it waits.
    struct Waiter : Hook {
        Waiter(const boost::asio::any_io_executor& executor, TimePoint deadline) : timer(executor, deadline) {}

        boost::asio::steady_timer timer;
        bool notified = false;
    };

    boost::asio::any_io_executor executor_;
    boost::intrusive::list<Waiter, boost::intrusive::constant_time_size<false>> waiters_;
};

}  // namespace distilld
