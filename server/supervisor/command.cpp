#include "server/supervisor/command.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/write.hpp>
#include <csignal>
#include <system_error>
#include <thread>
#include <utility>

#include "pipeline/async/deadline.hpp"
#include "pipeline/async/task_group.hpp"
#include "pipeline/async/tuple.hpp"
#include "server/supervisor/child_process.hpp"
#include "server/supervisor/worker_output.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;

/// Its destructor ends the child if it has not ended.
struct RunningCommand {
    RunningCommand(const asio::any_io_executor& executor, const Child& child)
        : pid(child.pid),
          channel(executor, asio::local::stream_protocol(), child.channel),
          errors(executor, {}),
          exit_event(executor) {
        errors.assign(child.output);
        if (child.exit_event >= 0) {
            exit_event.assign(child.exit_event);
        }
    }
    RunningCommand(const RunningCommand&) = delete;
    RunningCommand& operator=(const RunningCommand&) = delete;
    /// Gives up on a child that hangs in the kernel.
    ~RunningCommand() {
        constexpr int kTries = 500;
        kill();
        for (int tries = 0; pid > 0 && tries < kTries && ::waitpid(pid, nullptr, WNOHANG) == 0; ++tries) {
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
    }

    void kill() const {
        if (pid > 0) {
            ::kill(-pid, SIGKILL);
        }
    }

    pid_t pid;  ///< -1: reaped
    asio::local::stream_protocol::socket channel;
    WorkerOutput errors;
    asio::posix::stream_descriptor exit_event;
    std::string answer;
    bool too_long = false;
};

/// The end of an error about a program with these last words.
std::string said(const std::string& last_line) {
    return last_line.empty() ? "" : "; it said: " + last_line;
}

asio::awaitable<void> write_input(RunningCommand& running, const std::string& input) {
    // A command that does not read its input tells why by its exit code.
    const auto space = asio::buffer(input);
    co_await asio::async_write(running.channel, space, kTuple);
    boost::system::error_code ignored;
    running.channel.shutdown(asio::local::stream_protocol::socket::shutdown_send, ignored);
}

asio::awaitable<void> read_answer(RunningCommand& running, std::size_t max_bytes) {
    const auto space = asio::dynamic_buffer(running.answer, max_bytes + 1);
    co_await asio::async_read(running.channel, space, kTuple);
    running.too_long = running.answer.size() > max_bytes;
    if (running.too_long) {
        running.kill();
    }
}

asio::awaitable<CommandAnswer> answer_of(RunningCommand& running, const Command& command) {
    TaskGroup tasks(running.channel.get_executor());
    static_cast<void>(tasks.spawn(write_input(running, command.input)));
    static_cast<void>(tasks.spawn(read_answer(running, command.max_answer)));
    static_cast<void>(tasks.spawn(running.errors.read()));
    co_await tasks.join();
    const int status = co_await await_child(running.exit_event, running.pid);
    running.kill();  // what it has left in its group
    running.pid = -1;
    co_return CommandAnswer{shell_exit_code(status), std::move(running.answer), running.errors.last_line()};
}

}  // namespace

asio::awaitable<Result<CommandAnswer>> run_command(Command command) {
    const auto child =
        start_child(command.program, command.arguments, command.environment, {}, command.nice, ChannelAt::stdio);
    if (!child) {
        co_return child.error();
    }
    const auto executor = co_await asio::this_coro::executor;
    RunningCommand running(executor, *child);
    auto answering = answer_of(running, command);
    auto answer = co_await with_deadline(std::move(answering), command.deadline);
    const std::string name = command.name.empty() ? command.program.string() : command.name;
    if (!answer) {
        co_return io_error(name + " did not end within " + std::to_string(command.deadline.count()) +
                           " ms and was killed" + said(running.errors.last_line()));
    }
    if (running.too_long) {
        co_return io_error(name + ": its answer is longer than " + std::to_string(command.max_answer) + " bytes" +
                           said(answer->errors));
    }
    co_return std::move(*answer);
}

std::optional<std::filesystem::path> find_program(std::string_view name, std::string_view path) {
    while (!path.empty()) {
        const std::size_t end = path.find(':');
        const auto file = std::filesystem::path(path.substr(0, end)) / name;
        path.remove_prefix(end == std::string_view::npos ? path.size() : end + 1);
        std::error_code failed;
        if (file.is_absolute() && std::filesystem::is_regular_file(file, failed) && ::access(file.c_str(), X_OK) == 0) {
            return file;
        }
    }
    return std::nullopt;
}

}  // namespace distilld
