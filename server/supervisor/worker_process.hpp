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
#include "server/supervisor/oom_kills.hpp"

namespace distilld {

/// Kinds of the FailedEvent of a worker that did not say itself how it ended.
inline constexpr const char* kWorkerKilled = "worker_killed";  ///< it died at work
/// It said that memory ran out, or died of it: the kernel killed it for that, or it ended with those words.
inline constexpr const char* kWorkerOutOfMemory = kOutOfMemory;
/// It died, or had to be ended, before it was told its job, which is therefore not to blame.
inline constexpr const char* kWorkerNotStarted = "worker_not_started";

/// How a worker process ended.
struct WorkerExit {
    int exit_code = 0;        ///< as the shell would say it: 128 + signal when killed
    std::string stderr_tail;  ///< last 8 KiB of what it wrote to stderr, as UTF-8
};

struct WorkerProcessOptions {
    std::filesystem::path program;  ///< distilld-worker
    std::vector<std::string> arguments{"train"};
    std::vector<std::string> environment;     ///< NAME=value, beside what child_environment() passes on
    std::vector<std::uint32_t> cores;         ///< that it may run on; empty = as we
    int nice = 0;                             ///< added to our nice value; 0 to 19
    std::chrono::seconds hello_timeout{120};  ///< for the first message (libtorch takes a while to load)
    std::chrono::seconds stop_grace{60};      ///< between cancel and SIGKILL
    bool forward_stderr = true;               ///< copy the worker's stderr (and stdout) to ours, line by line
    std::function<void(const std::string&)> stderr_sink;  ///< takes the forwarded lines in place of our stderr
    OomKills oom_kills = kernel_oom_kills();              ///< tells a kill for lack of memory from another
};

/// One training worker as a child process, spoken to in newline-delimited JSON over a socket pair (fd 3 of the child;
/// server/protocol/worker_protocol.hpp). When we die, the child gets SIGTERM (PR_SET_PDEATHSIG). One executor.
class WorkerProcess {
  public:
    using EventHandler = std::function<void(const WorkerEvent&)>;
    virtual ~WorkerProcess() = default;

    /// Starts the child, sends `start`, hands each event to `on_event`, returns once the child has been reaped. A child
    /// that ended without a last event (finished, cancelled, failed) yields a FailedEvent that names its exit status
    /// and stderr first: of kind kWorkerKilled, kWorkerOutOfMemory or kWorkerNotStarted, "internal" after kill().
    /// Cancelled (terminal): asks the child to cancel, sends SIGTERM after three quarters of stop_grace and kills it
    /// after all of it; a child that was not told its job yet is ended at once and yields an empty CancelledEvent. An
    /// error: the program could not be started. Once an object.
    virtual boost::asio::awaitable<Result<WorkerExit>> run(WorkerStart start, EventHandler on_event) = 0;

    /// Queues a command (before the child is ready, too); dropped when the child is gone.
    virtual void send(const WorkerCommand& command) = 0;

    /// Kills the child at once (second interrupt).
    virtual void kill() = 0;
};

std::unique_ptr<WorkerProcess> make_worker_process(boost::asio::any_io_executor executor, WorkerProcessOptions options);

/// distilld-worker beside the running program.
std::filesystem::path default_worker_program();

}  // namespace distilld
