#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "pipeline/core/worker_events.hpp"
#include "server/protocol/failure_kinds.hpp"
#include "server/protocol/worker_messages.hpp"
#include "server/supervisor/child_process.hpp"
#include "server/supervisor/oom_kills.hpp"

namespace distilld {

/// Kinds of the FailedEvent for a worker that did not report its own end.
inline constexpr const char* kWorkerKilled = "worker_killed";  ///< it died at work
/// It reported that memory ran out, or died of it: killed by the kernel, or ended with a message that says so.
inline constexpr const char* kWorkerOutOfMemory = kOutOfMemory;
/// It died, or was killed, before it was told its job, so the job is not to blame.
inline constexpr const char* kWorkerNotStarted = "worker_not_started";
/// Somebody has ended it outside of the service, and for good.
inline constexpr const char* kWorkerCancelled = "worker_cancelled";

/// How a worker process ended.
struct WorkerExit {
    int exit_code = 0;        ///< as a shell reports it: 128 + signal if killed
    std::string stderr_tail;  ///< its last 8 KiB on stderr, as UTF-8
};

struct WorkerProcessOptions {
    std::filesystem::path program;  ///< distilld-worker
    std::vector<std::string> arguments{"train"};
    std::vector<std::string> environment;  ///< NAME=value, added to what child_environment() passes on
    std::vector<std::uint32_t> cores;      ///< that it may run on; empty = ours
    ChannelAt channel = ChannelAt::protocol_fd;
    int nice = 0;                             ///< added to our nice value; 0 to 19
    std::chrono::seconds hello_timeout{120};  ///< for the first message; loading libtorch takes a while
    std::chrono::seconds stop_grace{60};      ///< between cancel and SIGKILL
    bool forward_stderr = true;               ///< copy the worker's stderr (and stdout) to ours, line by line
    std::function<void(const std::string&)> stderr_sink;  ///< takes the forwarded lines instead of our stderr
    OomKills oom_kills = kernel_oom_kills();              ///< to recognize kills for lack of memory
};

/// One training worker as a child process. It speaks newline-delimited JSON over a socket pair (fd 3 of the child;
/// server/protocol/worker_protocol.hpp) and gets SIGTERM when we die (PR_SET_PDEATHSIG). One executor.
class WorkerProcess {
  public:
    using EventHandler = std::function<void(const WorkerEvent&)>;
    virtual ~WorkerProcess() = default;

    /// Starts the child, sends `start`, passes each event to `on_event`, and returns once the child has been reaped. If
    /// the child ended without a last event (finished, cancelled, failed), a FailedEvent comes first, with exit status
    /// and stderr. Its kind is kWorkerKilled, kWorkerOutOfMemory or kWorkerNotStarted, or "internal" after kill(). When
    /// run() is cancelled (terminal), it asks the child to cancel, sends SIGTERM after 3/4 of stop_grace and SIGKILL at
    /// its end; a child without a job is killed at once, with an empty CancelledEvent. An error if the program cannot
    /// be started. Call it once per object.
    virtual boost::asio::awaitable<Result<WorkerExit>> run(WorkerStart start, EventHandler on_event) = 0;

    /// Queues a command, even before the child is ready; dropped after the child's end.
    virtual void send(const WorkerCommand& command) = 0;

    /// Kills the child at once (second interrupt).
    virtual void kill() = 0;
};

std::unique_ptr<WorkerProcess> make_worker_process(boost::asio::any_io_executor executor, WorkerProcessOptions options);

/// distilld-worker next to the running program.
std::filesystem::path default_worker_program();

}  // namespace distilld
