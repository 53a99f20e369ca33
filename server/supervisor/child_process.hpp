#pragma once

#include <sys/types.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace distilld {

/// A started child. The caller closes the descriptors; all are close-on-exec.
struct Child {
    pid_t pid = -1;
    int channel = -1;     ///< our end of the socket pair
    int output = -1;      ///< what the child writes to stderr, and to stdout unless that is the channel
    int exit_event = -1;  ///< pidfd, readable once the child has ended; -1 if the kernel has none
};

/// The child's end of the channel.
enum class ChannelAt {
    protocol_fd,  ///< kWorkerProtocolFd; stdin is /dev/null
    stdio,        ///< stdin and stdout
};

/// Starts `program` with `arguments` in its own process group (a Ctrl-C on the terminal reaches only us), with no other
/// descriptor of ours and default signal handling. The kernel sends it SIGTERM when the calling thread ends.
/// `environment` is its whole environment, NAME=value; `cores` are the ones it may run on (empty: ours); `nice` is
/// added to the calling thread's. An error if it cannot be executed or bound to its cores. Any thread.
Result<Child> start_child(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                          const std::vector<std::string>& environment, const std::vector<std::uint32_t>& cores = {},
                          int nice = 0, ChannelAt channel_at = ChannelAt::protocol_fd);

/// Waits for the end of the child and reaps it: its status as of waitpid. `exit_event`: its Child::exit_event; without
/// one (not open), it polls. Cancellation throws operation_aborted.
boost::asio::awaitable<int> await_child(boost::asio::posix::stream_descriptor& exit_event, pid_t pid);

/// `status` of waitpid as a shell reports it: 128 + signal if killed.
[[nodiscard]] int shell_exit_code(int status);

/// "exited with code 3", "was killed by signal 11 (Segmentation fault)".
[[nodiscard]] std::string describe_exit(int status);

}  // namespace distilld
