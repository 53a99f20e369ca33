#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/cancellation_state.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/system/system_error.hpp>

namespace distilld {

/// What coroutines of one executor wait on until another says that something changed. As with every condition, look
/// at the state again after waking. One strand only; must outlive its waiters.
class Condition {
  public:
    explicit Condition(const boost::asio::any_io_executor& executor)
        : timer_(executor, boost::asio::steady_timer::time_point::max()) {}

    /// Wakes all that wait now.
    void notify_all() { timer_.cancel(); }

    /// Waits for the next notify_all(). Throws operation_aborted when the waiting coroutine is cancelled.
    boost::asio::awaitable<void> wait() {
        co_await timer_.async_wait(boost::asio::as_tuple(boost::asio::use_awaitable));
        // A notification and a cancellation both end the wait with operation_aborted.
        const auto state = co_await boost::asio::this_coro::cancellation_state;
        if (state.cancelled() != boost::asio::cancellation_type::none) {
            throw boost::system::system_error(boost::asio::error::operation_aborted);
        }
    }

    [[nodiscard]] boost::asio::any_io_executor get_executor() { return timer_.get_executor(); }

  private:
    boost::asio::steady_timer timer_;
};

}  // namespace distilld
