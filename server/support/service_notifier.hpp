#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace distilld {

/// Tells systemd how the service is (sd_notify(3)): lines such as "READY=1" in a datagram to the socket of
/// NOTIFY_SOCKET. Without that variable it tells nobody. The protocol is systemd's promise and this is all of it, so no
/// library is linked. Any thread; waits for nobody.
class ServiceNotifier {
  public:
    /// By this process's NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID.
    [[nodiscard]] static ServiceNotifier from_environment();

    /// `watchdog`: see below.
    explicit ServiceNotifier(std::string socket, std::optional<std::chrono::microseconds> watchdog = std::nullopt)
        : socket_(std::move(socket)), watchdog_(watchdog) {}

    /// `state`: NAME=value, one a line. False: nobody was told.
    bool send(std::string_view state) const noexcept;

    /// The service is ended when it says WATCHDOG=1 less often than this; nothing: nobody watches.
    [[nodiscard]] std::optional<std::chrono::microseconds> watchdog() const noexcept { return watchdog_; }

  private:
    std::string socket_;  ///< a path, "@name" in the abstract namespace, or empty
    std::optional<std::chrono::microseconds> watchdog_;
};

}  // namespace distilld
