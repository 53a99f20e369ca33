#include "server/supervisor/worker_process.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <csignal>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

#include "server/protocol/line_channel.hpp"
#include "server/protocol/worker_protocol.hpp"
#include "server/supervisor/child_process.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
constexpr std::size_t kStderrTail = 8U << 10;
constexpr std::size_t kLongestForwardedLine = 8U << 10;
constexpr std::chrono::milliseconds kReapPoll{50};
/// What a child's children that still hold its pipes get after its end.
constexpr std::chrono::seconds kAfterExit{2};

void write_to_stderr(const std::string& line) {
    std::string text = line + '\n';
    std::string_view rest = text;
    while (!rest.empty()) {
        const ssize_t written = ::write(STDERR_FILENO, rest.data(), rest.size());
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            return;
        }
        rest.remove_prefix(static_cast<std::size_t>(written));
    }
}

/// What the tasks of one run share. Its destruction without an orderly end (the executor's context is destroyed) kills
/// and reaps the child.
struct Run {
    Run(const asio::any_io_executor& executor, WorkerProcessOptions options_in)
        : options(std::move(options_in)),
          wake(executor, Clock::time_point::max()),
          output(executor),
          exit_event(executor) {}
    ~Run() {
        if (pid <= 0) {
            return;
        }
        send_signal(SIGKILL);
        while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
        }
    }
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

    /// To the whole process group: loaders and compilers that a worker may start go with it.
    void send_signal(int number) const {
        if (pid > 0) {
            ::kill(-pid, number);
        }
    }
    /// Ends the child because of `why`, which becomes the run's failure unless it had its last event.
    void abort(std::string why) {
        if (failure.empty()) {
            failure = std::move(why);
        }
        send_signal(SIGKILL);
    }
    void send(const WorkerCommand& command) {
        if (!started || !lines) {
            if (!ended) {
                waiting.push_back(command);
            }
            return;
        }
        DownMessage message;
        std::visit([&message](const auto& order) { message = order; }, command);
        lines->send(encode(message), false);
    }

    WorkerProcessOptions options;
    WorkerStart start;
    WorkerProcess::EventHandler on_event;
    std::unique_ptr<LineChannel> lines;
    asio::steady_timer wake;
    asio::posix::stream_descriptor output;
    asio::posix::stream_descriptor exit_event;
    std::vector<WorkerCommand> waiting;  ///< commands given before the child was ready
    std::string tail;                    ///< last bytes of its stderr
    std::string failure;                 ///< why we ended it
    std::exception_ptr handler_failure;  ///< what on_event threw
    std::optional<int> status;           ///< of waitpid
    pid_t pid = -1;
    int tasks = 0;  ///< under way
    bool used = false;
    bool unwanted = false;  ///< cancelled before it was told its job
    bool started = false;   ///< hello received, start sent
    bool channel_open = true;
    bool last_event = false;  ///< finished, cancelled or failed was received
    bool ended = false;
};

/// The event inside an upward message; nullopt for the hello.
std::optional<WorkerEvent> event_of(UpMessage message) {
    return std::visit(
        [](auto&& content) -> std::optional<WorkerEvent> {
            if constexpr (std::is_same_v<std::decay_t<decltype(content)>, HelloMessage>) {
                return std::nullopt;
            } else {
                return WorkerEvent(std::forward<decltype(content)>(content));
            }
        },
        std::move(message));
}

void handle_message(Run& run, UpMessage message) {
    if (run.unwanted) {
        return;
    }
    std::optional<WorkerEvent> event = event_of(std::move(message));
    if (!run.started) {
        if (event) {
            run.abort("worker protocol: the first message of the worker is no hello");
            return;
        }
        run.started = true;
        run.lines->send(encode(DownMessage(run.start)), false);
        for (const auto& command : std::exchange(run.waiting, {})) {
            run.send(command);
        }
        run.wake.cancel();
        return;
    }
    if (!event) {
        run.abort("worker protocol: a second hello");
        return;
    }
    if (run.last_event) {
        return;  // nothing may follow the last event
    }
    run.last_event = ends_run(*event);
    if (run.last_event) {
        run.wake.cancel();
    }
    try {
        run.on_event(*event);
    } catch (...) {
        run.handler_failure = std::current_exception();
        run.abort("the event handler failed");
    }
}

asio::awaitable<void> read_messages(std::shared_ptr<Run> run) {
    while (!run->handler_failure) {
        auto line = co_await run->lines->receive();
        if (!line) {
            run->abort(line.error().message);
            break;
        }
        if (!line->has_value()) {
            break;
        }
        auto message = decode_up(**line);
        if (!message) {
            run->abort(message.error().message);
            break;
        }
        handle_message(*run, std::move(*message));
    }
    run->channel_open = false;
}

void forward(const Run& run, const std::string& line) {
    if (!run.options.forward_stderr) {
        return;
    }
    if (run.options.stderr_sink) {
        run.options.stderr_sink(line);
    } else {
        write_to_stderr(line);
    }
}

asio::awaitable<void> read_output(std::shared_ptr<Run> run) {
    std::array<char, 4096> piece{};
    std::string line;
    for (;;) {
        const auto space = asio::buffer(piece);
        const auto read = co_await run->output.async_read_some(space, kTuple);
        const std::string_view bytes(piece.data(), std::get<1>(read));
        run->tail.append(bytes);
        if (run->tail.size() > kStderrTail) {
            run->tail.erase(0, run->tail.size() - kStderrTail);
        }
        for (const char byte : bytes) {
            if (byte != '\n') {
                line += byte;
            }
            if (byte == '\n' || line.size() >= kLongestForwardedLine) {
                forward(*run, line);
                line.clear();
            }
        }
        if (std::get<0>(read)) {
            break;
        }
    }
    if (!line.empty()) {
        forward(*run, line);
    }
}

/// Reaps the child once it has ended.
asio::awaitable<void> wait_exit(std::shared_ptr<Run> run) {
    asio::steady_timer poll(co_await asio::this_coro::executor);
    for (;;) {
        if (run->exit_event.is_open()) {
            const auto waited = co_await run->exit_event.async_wait(asio::posix::stream_descriptor::wait_read, kTuple);
            error_code ignored;
            if (std::get<0>(waited)) {
                run->exit_event.close(ignored);  // go on by polling
            }
        } else {
            poll.expires_after(kReapPoll);
            co_await poll.async_wait(kTuple);
        }
        int status = 0;
        const pid_t reaped = ::waitpid(run->pid, &status, WNOHANG);
        if (reaped == run->pid || (reaped < 0 && errno != EINTR)) {
            run->send_signal(SIGKILL);  // what the child has left behind in its group
            run->pid = -1;
            run->status = reaped < 0 ? 0 : status;
            co_return;
        }
    }
}

class ChildWorker final : public WorkerProcess {
  public:
    ChildWorker(asio::any_io_executor executor, WorkerProcessOptions options)
        : executor_(std::move(executor)), run_(std::make_shared<Run>(executor_, std::move(options))) {}
    ~ChildWorker() override { run_->send_signal(SIGKILL); }
    ChildWorker(const ChildWorker&) = delete;
    ChildWorker& operator=(const ChildWorker&) = delete;

    asio::awaitable<Result<WorkerExit>> run(WorkerStart start, EventHandler on_event) override {
        return run_child(executor_, run_, std::move(start), std::move(on_event));
    }
    void send(const WorkerCommand& command) override { run_->send(command); }
    void kill() override {
        run_->abort("the worker was killed on request");
        run_->wake.cancel();
    }

  private:
    static void spawn(const asio::any_io_executor& executor, const std::shared_ptr<Run>& run,
                      asio::awaitable<void> task) {
        ++run->tasks;
        asio::co_spawn(executor, std::move(task), [run](const std::exception_ptr& failure) {
            --run->tasks;
            if (failure && !run->ended) {
                try {
                    std::rethrow_exception(failure);
                } catch (const boost::system::system_error& error) {
                    if (error.code() != asio::error::operation_aborted) {
                        run->abort(error.what());
                    }
                } catch (const std::exception& error) {
                    run->abort(error.what());
                }
            }
            run->wake.cancel();
        });
    }

    static asio::awaitable<Result<WorkerExit>> run_child(asio::any_io_executor executor, std::shared_ptr<Run> run,
                                                         WorkerStart start, EventHandler on_event) {
        if (std::exchange(run->used, true)) {
            throw std::logic_error("WorkerProcess::run() called twice");
        }
        co_await asio::this_coro::throw_if_cancelled(false);
        run->start = std::move(start);
        run->on_event = std::move(on_event);
        if (!run->failure.empty()) {  // killed before it was started
            run->ended = true;
            run->on_event(FailedEvent{"internal", run->failure});
            co_return WorkerExit{128 + SIGKILL, {}};
        }
        const auto child = start_child(run->options.program, run->options.arguments, run->options.environment);
        if (!child) {
            run->ended = true;
            co_return child.error();
        }
        run->pid = child->pid;
        run->output.assign(child->output);
        if (child->exit_event >= 0) {
            run->exit_event.assign(child->exit_event);
        }
        run->lines = std::make_unique<LineChannel>(executor, child->channel, kWorkerMessageLimit);
        spawn(executor, run, read_messages(run));
        spawn(executor, run, read_output(run));
        spawn(executor, run, wait_exit(run));

        co_await supervise(run);
        run->ended = true;
        if (run->handler_failure) {
            std::rethrow_exception(run->handler_failure);
        }
        co_return conclude(*run);
    }

    /// Keeps the deadlines until the child has ended and its pipes have been read.
    static asio::awaitable<void> supervise(std::shared_ptr<Run> run) {
        const auto grace = run->options.stop_grace;
        const auto never = Clock::time_point::max();
        const auto hello_by = Clock::now() + run->options.hello_timeout;
        auto terminate_at = never;
        auto kill_at = never;
        auto close_at = never;
        bool cancelling = false;
        while (run->tasks > 0) {
            const auto now = Clock::now();
            const auto state = co_await asio::this_coro::cancellation_state;
            if (state.cancelled() != asio::cancellation_type::none && !cancelling) {
                cancelling = true;
                if (run->started) {
                    run->send(CancelCommand{});
                    terminate_at = now + grace * 3 / 4;
                    kill_at = std::min(kill_at, now + grace);
                } else if (run->failure.empty()) {
                    run->unwanted = true;  // it has done nothing yet
                    run->send_signal(SIGKILL);
                }
            }
            if (!run->status) {
                if (!run->started && now >= hello_by) {
                    run->abort("the worker (" + run->options.program.string() + ") did not report within " +
                               std::to_string(run->options.hello_timeout.count()) + " s");
                }
                // Its last word said, or its end of the channel closed: it has to leave now.
                if (run->last_event || !run->channel_open) {
                    kill_at = std::min(kill_at, now + grace);
                }
                if (now >= terminate_at) {
                    terminate_at = never;
                    run->send_signal(SIGTERM);
                }
                if (now >= kill_at) {
                    kill_at = never;
                    run->abort("the worker did not end within " + std::to_string(grace.count()) +
                               " s of being asked to and was killed");
                }
            } else if (close_at == never) {
                close_at = now + kAfterExit;
            } else if (now >= close_at) {
                run->lines->close();
                error_code ignored;
                run->output.close(ignored);
            }
            auto next = std::min({terminate_at, kill_at, close_at});
            if (!run->started && !run->status) {
                next = std::min(next, hello_by);
            }
            if (next <= now) {
                next = never;
            }
            run->wake.expires_at(next);
            if (run->tasks > 0) {
                co_await run->wake.async_wait(kTuple);
            }
        }
        if (run->unwanted) {
            run->last_event = true;
            deliver(*run, CancelledEvent{});
        }
    }

    static void deliver(Run& run, const WorkerEvent& event) {
        try {
            run.on_event(event);
        } catch (...) {
            run.handler_failure = std::current_exception();
        }
    }

    static WorkerExit conclude(Run& run) {
        const int status = run.status.value_or(0);
        if (!run.last_event) {
            std::string message = run.failure;
            if (message.empty()) {
                message = "the worker " + describe_exit(status) + " before it had finished";
                if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
                    message += "; the kernel does that when memory runs out";
                }
            }
            const auto end = run.tail.find_last_not_of(" \n\r\t");
            if (end != std::string::npos) {
                const auto begin = run.tail.rfind('\n', end);
                message += "; its last line on stderr: " +
                           run.tail.substr(begin == std::string::npos ? 0 : begin + 1, end - begin);
            }
            run.on_event(FailedEvent{"internal", std::move(message)});
        }
        return WorkerExit{shell_exit_code(status), run.tail};
    }

    asio::any_io_executor executor_;
    std::shared_ptr<Run> run_;
};

}  // namespace

std::unique_ptr<WorkerProcess> make_worker_process(asio::any_io_executor executor, WorkerProcessOptions options) {
    return std::make_unique<ChildWorker>(std::move(executor), std::move(options));
}

std::filesystem::path default_worker_program() {
    std::error_code ec;
    const auto self = std::filesystem::read_symlink("/proc/self/exe", ec);
    return (ec ? std::filesystem::path(".") : self.parent_path()) / "distilld-worker";
}

}  // namespace distilld
