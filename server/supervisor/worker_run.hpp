#pragma once

#include <sys/types.h>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/async/condition.hpp"
#include "server/protocol/line_channel.hpp"
#include "server/supervisor/child_process.hpp"
#include "server/supervisor/worker_output.hpp"
#include "server/supervisor/worker_process.hpp"

namespace distilld {

/// Whether the kernel killed a process for lack of memory in the last seconds. A run lasts for days, and other
/// processes may have been killed meanwhile; only a very recent kill can have been this child.
class OomWatch {
  public:
    explicit OomWatch(OomKills count) : count_(std::move(count)) {}
    /// Call it often; it reads the count once per second.
    void look(std::chrono::steady_clock::time_point now);
    [[nodiscard]] bool killed_lately() const;

  private:
    OomKills count_;
    /// The last two counts: one is always from before the kill, even if the other was read after it.
    std::optional<std::uint64_t> before_;
    std::optional<std::uint64_t> last_;
    std::optional<std::chrono::steady_clock::time_point> looked_;
};

/// One run of a child, with the state that its tasks share. If it is destroyed without an orderly end (with the
/// executor's context), it kills and reaps the child. One executor.
struct WorkerRun {
    WorkerRun(boost::asio::any_io_executor executor_in, WorkerProcessOptions options_in);
    ~WorkerRun();
    WorkerRun(const WorkerRun&) = delete;
    WorkerRun& operator=(const WorkerRun&) = delete;

    /// Takes ownership of a started child; the three tasks below then read from it until it has ended.
    void adopt(const Child& child);

    /// To the whole process group, which includes loaders and compilers that a worker may start.
    void send_signal(int number) const;
    /// Ends the child. `why` becomes the run's failure unless the last event has arrived.
    void abort(std::string why);
    /// Queued until the child is ready; dropped after the run's end.
    void send(const WorkerCommand& command);
    void deliver(const WorkerEvent& event);

    boost::asio::any_io_executor executor;
    WorkerProcessOptions options;
    WorkerStart start;
    WorkerProcess::EventHandler on_event;
    Condition changed;  ///< notified when the supervision must look again
    WorkerOutput output;
    std::unique_ptr<LineChannel> lines;
    boost::asio::posix::stream_descriptor exit_event;
    std::vector<WorkerCommand> waiting;  ///< commands from before the child was ready
    std::string failure;                 ///< why we ended it
    std::exception_ptr handler_failure;  ///< what on_event threw
    std::optional<int> status;           ///< from waitpid
    OomWatch oom_watch;
    bool oom_killed = false;  ///< by the kernel, for lack of memory
    pid_t pid = -1;
    bool used = false;
    bool killed = false;      ///< on request
    bool unwanted = false;    ///< cancelled before it was told its job
    bool started = false;     ///< hello received, start sent
    bool last_event = false;  ///< finished, cancelled or failed was received
    bool ended = false;
    bool reading_messages = false;  ///< read_messages() is running
    bool reading_output = false;    ///< read_output() is running
    bool awaiting_exit = false;     ///< await_exit() is running
};

/// Passes on the child's events until the child closes its end of the channel.
boost::asio::awaitable<void> read_messages(std::shared_ptr<WorkerRun> run);

/// Reads the child's stderr and stdout.
boost::asio::awaitable<void> read_output(std::shared_ptr<WorkerRun> run);

/// Reaps the child once it has ended.
boost::asio::awaitable<void> await_exit(std::shared_ptr<WorkerRun> run);

}  // namespace distilld
