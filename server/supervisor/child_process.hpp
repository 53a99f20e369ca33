#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace distilld {

/// A started child. The caller closes the descriptors; all are close-on-exec.
struct Child {
    pid_t pid = -1;
    int channel = -1;     ///< our end of the socket pair; the child's is kWorkerProtocolFd
    int output = -1;      ///< what the child writes to stderr and stdout
    int exit_event = -1;  ///< pidfd, readable once the child has ended; -1 if the kernel has none
};

/// Starts `program` with `arguments` in its own process group (a Ctrl-C on the terminal reaches only us), with stdin
/// from /dev/null, no other descriptor of ours and default signal handling. The kernel sends it SIGTERM when the
/// calling thread ends. `environment` is its whole environment, NAME=value; `cores` are the ones it may run on (empty:
/// ours); `nice` is added to the calling thread's. An error if it cannot be executed or bound to its cores. Any thread.
Result<Child> start_child(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                          const std::vector<std::string>& environment, const std::vector<std::uint32_t>& cores = {},
                          int nice = 0);

/// `status` of waitpid as a shell reports it: 128 + signal if killed.
[[nodiscard]] int shell_exit_code(int status);

/// "exited with code 3", "was killed by signal 11 (Segmentation fault)".
[[nodiscard]] std::string describe_exit(int status);

}  // namespace distilld
