#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <map>
#include <string>

namespace distilld {

/// Readers that wait for an event of a job. One executor. Must outlive the frames of wait(), also those that are
/// destroyed in mid-wait.
class EventWaiters {
  public:
    /// Returns when the job is woken, or after `limit`.
    boost::asio::awaitable<void> wait(boost::asio::any_io_executor executor, std::string job_id,
                                      std::chrono::milliseconds limit) {
        boost::asio::steady_timer timer(executor, limit);
        struct Entry {
            Timers& timers;
            Timers::iterator place;
            ~Entry() { timers.erase(place); }
        };
        const Entry entry{timers_, timers_.emplace(job_id, &timer)};
        co_await timer.async_wait(boost::asio::as_tuple(boost::asio::use_awaitable));
    }

    void wake(const std::string& job_id) {
        const auto [first, last] = timers_.equal_range(job_id);
        for (auto waiter = first; waiter != last; ++waiter) {
            waiter->second->cancel();
        }
    }

    void wake_all() {
        for (auto& [id, timer] : timers_) {
            timer->cancel();
        }
    }

  private:
    using Timers = std::multimap<std::string, boost::asio::steady_timer*>;
    Timers timers_;  ///< by job
};

}  // namespace distilld
