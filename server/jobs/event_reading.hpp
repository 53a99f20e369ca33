#pragma once

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <string>

#include "server/jobs/event_waiters.hpp"
#include "server/jobs/job_answers.hpp"
#include "server/jobs/job_journal.hpp"
#include "server/jobs/job_table.hpp"

namespace distilld {

/// Reads what happens to jobs as it happens. The manager's thread; all that it is given must outlive it.
class EventReading {
  public:
    /// `heartbeat`: longest wait of wait().
    EventReading(JobJournal& journal, const JobTable& table, EventWaiters& waiters, std::chrono::milliseconds heartbeat)
        : journal_(journal), table_(table), waiters_(waiters), heartbeat_(heartbeat) {}

    /// See JobManager::wait_events().
    boost::asio::awaitable<EventBatch> wait(std::string id, std::uint64_t after, std::uint32_t limit);

  private:
    EventBatch read(const std::string& id, std::uint64_t after, std::uint32_t limit);

    JobJournal& journal_;
    const JobTable& table_;
    EventWaiters& waiters_;
    const std::chrono::milliseconds heartbeat_;
};

}  // namespace distilld
