#include "server/support/service_notifier.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/ascii.hpp"
#include "base/environment.hpp"

namespace distilld {
namespace {

std::optional<std::int64_t> positive(std::string_view text) {
    const auto number = number_from<std::int64_t>(text);
    return number && *number > 0 ? number : std::nullopt;
}

}  // namespace

ServiceNotifier ServiceNotifier::from_environment() {
    const std::string pid = environment_variable("WATCHDOG_PID").value_or("");
    const auto interval = positive(environment_variable("WATCHDOG_USEC").value_or(""));
    const bool ours = pid.empty() || positive(pid) == std::optional<std::int64_t>(::getpid());
    return ServiceNotifier(environment_variable("NOTIFY_SOCKET").value_or(""),
                           interval && ours ? std::optional(std::chrono::microseconds(*interval)) : std::nullopt);
}

bool ServiceNotifier::send(std::string_view state) const noexcept {
    sockaddr_un address{};
    if (socket_.empty() || (socket_.front() != '/' && socket_.front() != '@') ||
        socket_.size() >= sizeof(address.sun_path)) {
        return false;
    }
    address.sun_family = AF_UNIX;
    std::ranges::copy(socket_, address.sun_path);
    if (socket_.front() == '@') {
        address.sun_path[0] = '\0';
    }
    const int descriptor = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0) {
        return false;
    }
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_.size());
    const auto sent = ::sendto(descriptor, state.data(), state.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
                               reinterpret_cast<const sockaddr*>(&address), size);
    ::close(descriptor);
    return sent == static_cast<ssize_t>(state.size());
}

}  // namespace distilld
