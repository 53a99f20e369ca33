#include "server/supervisor/worker_run.hpp"

#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/utf8.hpp"
#include "server/protocol/worker_protocol.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;

constexpr std::chrono::seconds kOomLooks{1};

/// Tells the supervision that a task has ended, in whatever way.
class Part {
  public:
    Part(WorkerRun& run, bool WorkerRun::* under_way) : run_(run), under_way_(under_way) {}
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;
    ~Part() {
        run_.*under_way_ = false;
        run_.changed.notify();
    }

  private:
    WorkerRun& run_;
    bool WorkerRun::* under_way_;
};

WorkerOutput::LineSink line_sink(const WorkerProcessOptions& options) {
    if (!options.forward_stderr) {
        return {};
    }
    return options.stderr_sink ? options.stderr_sink : write_to_stderr;
}

/// The event in a message of the worker; nullopt for the hello.
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

void handle_first_message(WorkerRun& run, const std::optional<WorkerEvent>& event) {
    if (event) {
        run.abort("worker protocol: the first message of the worker is not hello");
        return;
    }
    run.started = true;
    run.lines->send(encode(DownMessage(run.start)), false);
    for (const auto& command : std::exchange(run.waiting, {})) {
        run.send(command);
    }
    run.changed.notify();
}

void handle_message(WorkerRun& run, UpMessage message) {
    if (run.unwanted) {
        return;
    }
    run.oom_watch.look(std::chrono::steady_clock::now());
    const std::optional<WorkerEvent> event = event_of(std::move(message));
    if (!run.started) {
        handle_first_message(run, event);
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
        run.changed.notify();
    }
    run.deliver(*event);
}

}  // namespace

void OomWatch::look(std::chrono::steady_clock::time_point now) {
    if (looked_ && now - *looked_ < kOomLooks) {
        return;
    }
    looked_ = now;
    before_ = std::exchange(last_, count_ ? count_() : std::nullopt);
    if (!before_) {
        before_ = last_;
    }
}

bool OomWatch::killed_lately() const {
    const auto now = count_ ? count_() : std::nullopt;
    return before_ && now && *now > *before_;
}

WorkerRun::WorkerRun(asio::any_io_executor executor_in, WorkerProcessOptions options_in)
    : executor(std::move(executor_in)),
      options(std::move(options_in)),
      changed(executor),
      output(executor, line_sink(options)),
      exit_event(executor),
      oom_watch(options.oom_kills) {}

WorkerRun::~WorkerRun() {
    if (pid <= 0) {
        return;
    }
    send_signal(SIGKILL);
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
}

void WorkerRun::adopt(const Child& child) {
    pid = child.pid;
    oom_watch.look(std::chrono::steady_clock::now());
    output.assign(child.output);
    if (child.exit_event >= 0) {
        exit_event.assign(child.exit_event);
    }
    lines = std::make_unique<LineChannel>(executor, child.channel, kWorkerMessageLimit);
    reading_messages = true;
    reading_output = true;
    awaiting_exit = true;
}

void WorkerRun::send_signal(int number) const {
    if (pid > 0) {
        ::kill(-pid, number);
    }
}

void WorkerRun::abort(std::string why) {
    if (failure.empty()) {
        failure = std::move(why);
    }
    send_signal(SIGKILL);
}

void WorkerRun::send(const WorkerCommand& command) {
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

void WorkerRun::deliver(const WorkerEvent& event) {
    try {
        on_event(event);
    } catch (...) {
        handler_failure = std::current_exception();
        abort("the event handler failed");
    }
}

asio::awaitable<void> read_messages(std::shared_ptr<WorkerRun> run) {
    const Part part(*run, &WorkerRun::reading_messages);
    while (!run->handler_failure) {
        auto line = co_await run->lines->receive();
        if (!line) {
            run->abort(line.error().message);
            break;
        }
        if (!line->has_value()) {
            break;
        }
        // A worker forwards texts from others; a bad byte in one must not end the run.
        auto message = decode_up(to_valid_utf8(**line));
        if (!message) {
            run->abort(message.error().message);
            break;
        }
        handle_message(*run, std::move(*message));
    }
}

asio::awaitable<void> read_output(std::shared_ptr<WorkerRun> run) {
    const Part part(*run, &WorkerRun::reading_output);
    co_await run->output.read();
}

asio::awaitable<void> await_exit(std::shared_ptr<WorkerRun> run) {
    const Part part(*run, &WorkerRun::awaiting_exit);
    run->status = co_await await_child(run->exit_event, run->pid);
    run->send_signal(SIGKILL);  // kill what the child has left in its group
    run->pid = -1;
    const bool by_force = WIFSIGNALED(*run->status) && WTERMSIG(*run->status) == SIGKILL;
    run->oom_killed = by_force && run->failure.empty() && run->oom_watch.killed_lately();
}

}  // namespace distilld
