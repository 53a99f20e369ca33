#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <optional>

namespace distilld {

/// A condition that coroutines of one executor wait for: notify() wakes all that wait, and is remembered when nobody
/// does. Waiters look at their own state again after each wake-up. Single-threaded executor or strand only.
class Signal {
  public:
    explicit Signal(boost::asio::any_io_executor executor) : timer_(executor) {
        timer_.expires_at(std::chrono::steady_clock::time_point::max());
    }

    void notify() {
        notified_ = true;
        timer_.cancel();
    }

    /// Until notify() or `deadline`, whichever comes first; also returns when the operation is cancelled. At most one
    /// waiter at a time.
    boost::asio::awaitable<void> wait(std::optional<std::chrono::steady_clock::time_point> deadline = std::nullopt) {
        if (!notified_) {
            timer_.expires_at(deadline.value_or(std::chrono::steady_clock::time_point::max()));
            co_await timer_.async_wait(boost::asio::as_tuple(boost::asio::use_awaitable));
        }
        notified_ = false;
    }

  private:
    boost::asio::steady_timer timer_;
    bool notified_ = false;
};

}  // namespace distilld
