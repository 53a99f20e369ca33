#include "server/protocol/stdio_bridge.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "base/files/files.hpp"

namespace distilld {
namespace {

Error bridge_error(const std::string& what) {
    return io_error("stdin and stdout cannot be the worker's channel: " + what + ": " + std::strerror(errno));
}

/// False: there is no more, or nobody takes it.
bool copy_some(int from, int to) {
    std::array<char, 16384> bytes{};
    const ssize_t got = ::read(from, bytes.data(), bytes.size());
    if (got <= 0) {
        return got < 0 && errno == EINTR;
    }
    const std::span taken(bytes.data(), static_cast<std::size_t>(got));
    return write_all(to, std::as_bytes(taken), "the worker's channel").has_value();
}

/// Until the worker's end is closed, or the parent does not read.
void copy_both_ways(int in, int out, int socket) {
    std::array<pollfd, 2> ends{pollfd{socket, POLLIN, 0}, pollfd{in, POLLIN, 0}};
    for (;;) {
        if (::poll(ends.data(), ends.size(), -1) < 0) {
            if (errno != EINTR) {
                break;
            }
            continue;
        }
        if (ends[0].revents != 0 && !copy_some(socket, out)) {
            break;
        }
        if (ends[1].revents != 0 && !copy_some(in, socket)) {
            ::shutdown(socket, SHUT_WR);  // the parent is gone
            ends[1].fd = -1;
        }
    }
    ::shutdown(socket, SHUT_RDWR);
}

}  // namespace

StdioBridge::StdioBridge(Descriptor in, Descriptor out, Descriptor ours, Descriptor worker)
    : in_(std::move(in)),
      out_(std::move(out)),
      ours_(std::move(ours)),
      worker_(std::move(worker)),
      copying_([from = in_.get(), to = out_.get(), socket = ours_.get()] { copy_both_ways(from, to, socket); }) {}

Result<std::unique_ptr<StdioBridge>> StdioBridge::make(Descriptor in, Descriptor out) {
    std::array<int, 2> pair{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) != 0) {
        return bridge_error("socketpair");
    }
    return std::unique_ptr<StdioBridge>(
        new StdioBridge(std::move(in), std::move(out), Descriptor(pair[0]), Descriptor(pair[1])));
}

Result<std::unique_ptr<StdioBridge>> StdioBridge::take_over() {
    Descriptor in(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
    Descriptor out(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
    if (!in || !out || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
        return bridge_error("a descriptor");
    }
    return make(std::move(in), std::move(out));
}

}  // namespace distilld
