#include "server/supervisor/worker_process.hpp"

#include <sys/wait.h>

#include <boost/asio/this_coro.hpp>
#include <csignal>
#include <exception>
#include <stdexcept>
#include <utility>

#include "pipeline/async/failure_message.hpp"
#include "pipeline/async/task_group.hpp"
#include "server/supervisor/child_process.hpp"
#include "server/supervisor/worker_environment.hpp"
#include "server/supervisor/worker_run.hpp"
#include "server/supervisor/worker_supervision.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;

/// Whether it ended with the message of C++ or libtorch for an allocation that failed.
bool died_of_its_allocation(const WorkerRun& run, int status) {
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT) {
        return false;
    }
    const std::string said = run.output.tail();
    return said.find("'std::bad_alloc'") != std::string::npos ||
           said.find("DefaultCPUAllocator: can't allocate memory") != std::string::npos;
}

bool ran_out_of_memory(const WorkerRun& run, int status) {
    return run.failure.empty() && (run.oom_killed || died_of_its_allocation(run, status));
}

const char* kind_of_death(const WorkerRun& run, int status) {
    if (run.killed) {
        return to_string(ErrorKind::internal);
    }
    if (!run.started) {
        return kWorkerNotStarted;
    }
    return ran_out_of_memory(run, status) ? kWorkerOutOfMemory : kWorkerKilled;
}

/// Reports an end without a last event.
WorkerExit conclude(WorkerRun& run) {
    const int status = run.status.value_or(0);
    if (!run.last_event) {
        std::string message = run.failure;
        if (message.empty()) {
            message = "the worker " + describe_exit(status) + " before it had finished";
            if (run.oom_killed) {
                message = "the kernel killed the worker because memory ran out";
            } else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
                message += "; the kernel does that when memory runs out";
            }
        }
        if (const std::string line = run.output.last_line(); !line.empty()) {
            message += "; its last line on stderr: " + line;
        }
        run.on_event(FailedEvent{kind_of_death(run, status), std::move(message)});
    }
    return WorkerExit{shell_exit_code(status), run.output.tail()};
}

class ChildWorker final : public WorkerProcess {
  public:
    ChildWorker(asio::any_io_executor executor, WorkerProcessOptions options)
        : run_(std::make_shared<WorkerRun>(std::move(executor), std::move(options))) {}
    ~ChildWorker() override { run_->send_signal(SIGKILL); }
    ChildWorker(const ChildWorker&) = delete;
    ChildWorker& operator=(const ChildWorker&) = delete;

    asio::awaitable<Result<WorkerExit>> run(WorkerStart start, EventHandler on_event) override {
        return run_child(run_, std::move(start), std::move(on_event));
    }
    void send(const WorkerCommand& command) override { run_->send(command); }
    void kill() override {
        run_->killed = true;
        run_->abort("the worker was killed on request");
        run_->changed.notify();
    }

  private:
    static asio::awaitable<Result<WorkerExit>> run_child(std::shared_ptr<WorkerRun> run, WorkerStart start,
                                                         EventHandler on_event) {
        if (std::exchange(run->used, true)) {
            throw std::logic_error("WorkerProcess::run() called twice");
        }
        co_await asio::this_coro::throw_if_cancelled(false);
        run->start = std::move(start);
        run->on_event = std::move(on_event);
        if (!run->failure.empty()) {  // killed before it started
            run->ended = true;
            run->on_event(FailedEvent{"internal", run->failure});
            co_return WorkerExit{128 + SIGKILL, {}};
        }
        const auto environment = child_environment(run->options.environment, run->start.spec.get());
        const auto child = start_child(run->options.program, run->options.arguments, environment, run->options.cores,
                                       run->options.nice, run->options.channel);
        if (!child) {
            run->ended = true;
            co_return child.error();
        }
        run->adopt(*child);
        TaskGroupOptions group;
        group.on_failure = [run](const std::exception_ptr& failure) { run->abort(failure_message(failure)); };
        TaskGroup tasks(run->executor, std::move(group));
        static_cast<void>(tasks.spawn(read_messages(run)));
        static_cast<void>(tasks.spawn(read_output(run)));
        static_cast<void>(tasks.spawn(await_exit(run)));
        co_await supervise(run);
        co_await tasks.join();

        if (run->unwanted) {
            run->last_event = true;
            run->deliver(CancelledEvent{});
        }
        run->ended = true;
        if (run->handler_failure) {
            std::rethrow_exception(run->handler_failure);
        }
        co_return conclude(*run);
    }

    std::shared_ptr<WorkerRun> run_;
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
