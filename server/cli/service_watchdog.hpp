#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <utility>

#include "server/support/service_notifier.hpp"

namespace distilld::cli {

/// Sends WATCHDOG=1 to systemd while the service answers. It runs on the thread that answers requests, and asks the job
/// manager's thread each time. It does so every half interval; if either thread takes longer than the other half,
/// systemd ends the service. One executor.
class ServiceWatchdog {
  public:
    /// Returns when the job manager's thread has had a turn.
    using Ask = std::function<boost::asio::awaitable<void>()>;

    ServiceWatchdog(const boost::asio::any_io_executor& executor, ServiceNotifier notifier, Ask ask)
        : notifier_(std::move(notifier)), ask_(std::move(ask)), pause_(executor) {}

    /// Returns after stop(); at once if nobody watches.
    boost::asio::awaitable<void> run();
    void stop();

  private:
    ServiceNotifier notifier_;
    Ask ask_;
    boost::asio::steady_timer pause_;
    bool stopped_ = false;
};

}  // namespace distilld::cli
