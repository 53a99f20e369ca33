#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace distilld {

/// Reports the service's state to systemd (sd_notify(3)): lines such as "READY=1" in a datagram to the socket in
/// NOTIFY_SOCKET. Without that variable it does nothing. The protocol is stable and small, so no library is needed. Any
/// thread; never blocks.
class ServiceNotifier {
  public:
    /// From this process's NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID.
    [[nodiscard]] static ServiceNotifier from_environment();

    /// `watchdog`: see watchdog().
    explicit ServiceNotifier(std::string socket, std::optional<std::chrono::microseconds> watchdog = std::nullopt)
        : socket_(std::move(socket)), watchdog_(watchdog) {}

    /// `state`: NAME=value, one per line. False: not sent.
    bool send(std::string_view state) const noexcept;

    /// systemd restarts the service if WATCHDOG=1 is sent less often than this; nullopt: no watchdog.
    [[nodiscard]] std::optional<std::chrono::microseconds> watchdog() const noexcept { return watchdog_; }

  private:
    std::string socket_;  ///< a path, "@name" in the abstract namespace, or empty
    std::optional<std::chrono::microseconds> watchdog_;
};

}  // namespace distilld
