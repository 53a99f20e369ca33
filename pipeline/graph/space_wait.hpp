#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <functional>
#include <string>

#include "base/error.hpp"
#include "pipeline/async/condition.hpp"
#include "pipeline/core/worker_events.hpp"

namespace distilld {

/// Writes files, and waits out a full disk and other passing errors (write_error()). A write that fails with
/// ErrorKind::disk_full is retried every few seconds until it succeeds or is given up. A WaitingEvent (disk_full)
/// reports that a wait began; one with an empty code reports its end. All calls on the executor that it was given,
/// which is single-threaded.
class SpaceWait {
  public:
    static constexpr std::chrono::milliseconds kPause{5000};

    /// `emit` may be empty.
    SpaceWait(boost::asio::any_io_executor io, std::function<void(const WorkerEvent&)> emit,
              std::chrono::milliseconds pause = kPause);

    /// Runs `attempt` on `disk` until it succeeds or fails for another reason. The error is of kind disk_full only if
    /// the wait was given up. Each attempt must remove its incomplete files. One call at a time.
    boost::asio::awaitable<Result<std::string>> perform(boost::asio::any_io_executor disk,
                                                        std::function<Result<std::string>()> attempt);

    /// From now on each write is tried once, and the current wait ends.
    void give_up();
    [[nodiscard]] bool waiting() const noexcept { return waiting_; }

  private:
    void begin_wait(const Error& error);
    void end_wait(bool written);

    std::function<void(const WorkerEvent&)> emit_;
    std::chrono::milliseconds pause_;
    Condition changed_;
    bool given_up_ = false;
    bool waiting_ = false;
    double began_ = 0;  // seconds since the Unix epoch
};

}  // namespace distilld
