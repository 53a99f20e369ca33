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

/// Writes files, and waits out a full disk and what else passes (write_error()): what fails with ErrorKind::disk_full
/// is tried again every few seconds until it succeeds, or until nobody wants it any more. A WaitingEvent (disk_full)
/// says that a wait has begun, one with an empty code that it is over. All calls on the executor it is given, which is
/// single-threaded.
class SpaceWait {
  public:
    static constexpr std::chrono::milliseconds kPause{5000};

    /// `emit` may be empty.
    SpaceWait(boost::asio::any_io_executor io, std::function<void(const WorkerEvent&)> emit,
              std::chrono::milliseconds pause = kPause);

    /// Runs `attempt` on `disk` until it succeeds or fails for another reason. The error is of kind disk_full only when
    /// the wait was given up; each attempt has to remove what it left half written. Awaited one at a time.
    boost::asio::awaitable<Result<std::string>> perform(boost::asio::any_io_executor disk,
                                                        std::function<Result<std::string>()> attempt);

    /// There is one attempt from now on, and a wait under way ends.
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
