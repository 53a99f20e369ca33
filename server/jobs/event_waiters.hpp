#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "pipeline/async/condition.hpp"

namespace distilld {

/// Readers that wait for an event of a job. Call everything on the executor.
class EventWaiters {
  public:
    explicit EventWaiters(boost::asio::any_io_executor executor) : executor_(std::move(executor)) {}

    /// Returns when the job is woken, or at the deadline. Throws operation_aborted when cancelled.
    boost::asio::awaitable<void> wait(std::string job_id, Condition::TimePoint deadline) {
        auto& entry = conditions_[std::move(job_id)];
        if (!entry) {
            entry = std::make_shared<Condition>(executor_);
        }
        const auto condition = entry;  // wake() drops the one in the map
        co_await condition->wait(deadline);
    }

    void wake(const std::string& job_id) {
        if (const auto entry = conditions_.extract(job_id)) {
            entry.mapped()->notify();
        }
    }

    void wake_all() {
        for (const auto& [id, condition] : std::exchange(conditions_, {})) {
            condition->notify();
        }
    }

  private:
    boost::asio::any_io_executor executor_;
    /// By job: those that had a reader since they were last woken. A job that has ended is woken, and nobody waits for
    /// it unless it is resumed.
    std::map<std::string, std::shared_ptr<Condition>> conditions_;
};

}  // namespace distilld
