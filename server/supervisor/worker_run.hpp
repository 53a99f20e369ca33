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

/// Whether the kernel has killed for lack of memory within the last seconds. A run lasts for days, and others may have
/// been killed meanwhile: only what was counted just now can have been this child.
class OomWatch {
  public:
    explicit OomWatch(OomKills count) : count_(std::move(count)) {}
    /// To be called often; asks once a second.
    void look(std::chrono::steady_clock::time_point now);
    [[nodiscard]] bool killed_lately() const;

  private:
    OomKills count_;
    /// The last two looks, so that there is one from before the kill, whatever is read of the child behind it.
    std::optional<std::uint64_t> before_;
    std::optional<std::uint64_t> last_;
    std::optional<std::chrono::steady_clock::time_point> looked_;
};

/// One run of a child and what its tasks share. Its destruction without an orderly end (the executor's context is
/// destroyed) kills and reaps the child. One executor.
struct WorkerRun {
    WorkerRun(boost::asio::any_io_executor executor_in, WorkerProcessOptions options_in);
    ~WorkerRun();
    WorkerRun(const WorkerRun&) = delete;
    WorkerRun& operator=(const WorkerRun&) = delete;

    /// Takes over a started child; then the three tasks below read what it says until it has ended.
    void adopt(const Child& child);

    /// To the whole process group: loaders and compilers that a worker may start go with it.
    void send_signal(int number) const;
    /// Ends the child because of `why`, which becomes the run's failure unless it had its last event.
    void abort(std::string why);
    /// Kept until the child is ready; dropped when the run has ended.
    void send(const WorkerCommand& command);
    void deliver(const WorkerEvent& event);

    boost::asio::any_io_executor executor;
    WorkerProcessOptions options;
    WorkerStart start;
    WorkerProcess::EventHandler on_event;
    Condition changed;  ///< notified of what the supervision has to look at
    WorkerOutput output;
    std::unique_ptr<LineChannel> lines;
    boost::asio::posix::stream_descriptor exit_event;
    std::vector<WorkerCommand> waiting;  ///< commands given before the child was ready
    std::string failure;                 ///< why we ended it
    std::exception_ptr handler_failure;  ///< what on_event threw
    std::optional<int> status;           ///< of waitpid
    OomWatch oom_watch;
    bool oom_killed = false;  ///< the kernel did, for lack of memory
    pid_t pid = -1;
    bool used = false;
    bool killed = false;      ///< on request
    bool unwanted = false;    ///< cancelled before it was told its job
    bool started = false;     ///< hello received, start sent
    bool last_event = false;  ///< finished, cancelled or failed was received
    bool ended = false;
    bool reading_messages = false;  ///< read_messages() is under way
    bool reading_output = false;    ///< read_output() is
    bool awaiting_exit = false;     ///< await_exit() is
};

/// Hands the child's events on until its end of the channel closes.
boost::asio::awaitable<void> read_messages(std::shared_ptr<WorkerRun> run);

/// Reads what it writes to stderr and stdout.
boost::asio::awaitable<void> read_output(std::shared_ptr<WorkerRun> run);

/// Reaps the child once it has ended.
boost::asio::awaitable<void> await_exit(std::shared_ptr<WorkerRun> run);

}  // namespace distilld
