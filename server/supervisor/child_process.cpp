#include "server/supervisor/child_process.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/cores.hpp"
#include "base/files/descriptor.hpp"
#include "pipeline/async/tuple.hpp"
#include "server/protocol/worker_protocol.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;

constexpr std::chrono::milliseconds kReapPoll{50};

/// Above all descriptors of the child, so that no dup2 overwrites one that is still needed.
constexpr int kHighFd = 10;
constexpr unsigned kCloseRangeCloexec = 4;
/// For /proc/PID/oom_score_adj, in thousandths of all memory that the kernel adds to what the child takes.
constexpr int kOomScore = 500;

Error system_error_of(const std::string& what, int number) {
    return io_error(what + ": " + std::strerror(number));
}

/// Moves the descriptor to a number of at least kHighFd.
bool raise(Descriptor& descriptor) {
    descriptor = Descriptor(::fcntl(descriptor.get(), F_DUPFD_CLOEXEC, kHighFd));
    return bool(descriptor);
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
    std::vector<char*> result;
    result.reserve(texts.size() + 1);
    for (auto& text : texts) {
        result.push_back(text.data());
    }
    result.push_back(nullptr);
    return result;
}

struct ChildFds {
    int channel;
    int output;
    int null;
    int report;
};

/// Where and how the child is run.
struct ChildPlace {
    CoreSet cores;
    int nice = 0;        ///< added to the parent's nice value
    bool stdio = false;  ///< its channel is stdin and stdout
};

/// Why a child could not become its program.
struct StartFailure {
    int number = 0;      ///< errno
    bool cores = false;  ///< binding to the cores failed
};

/// If memory runs out, the kernel should kill the child, which resumes from a checkpoint, before the parent, which
/// holds all jobs, even if the child inherits a negative score that a service manager gave the parent.
/// Async-signal-safe.
void prefer_to_be_killed() {
    const int file = ::open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
    std::array<char, 8> text{};
    const ssize_t size = ::read(file, text.data(), text.size());
    int score = 0;
    if (size > 0 && std::from_chars(text.data(), text.data() + size, score).ec == std::errc() && score < kOomScore) {
        const char* const end = std::to_chars(text.data(), text.data() + text.size(), kOomScore).ptr;
        [[maybe_unused]] const ssize_t written =
            ::write(file, text.data(), static_cast<std::size_t>(end - text.data()));
    }
    ::close(file);
}

/// Runs between fork and exec, so only async-signal-safe calls: other threads' locks may never be released.
[[noreturn]] void become(const char* program, char* const* arguments, char* const* environment, ChildFds fds,
                         pid_t parent, int fd_limit, const ChildPlace& place) {
    const auto fail = [&fds](bool of_cores = false) {
        const StartFailure failure{errno, of_cores};
        [[maybe_unused]] const ssize_t written = ::write(fds.report, &failure, sizeof(failure));
        ::_exit(127);
    };
    ::setpgid(0, 0);
    // After the death of its service a worker saves its last step, within its own deadline.
    if (::prctl(PR_SET_PDEATHSIG, SIGTERM) != 0) {
        fail();
    }
    if (::getppid() != parent) {
        ::_exit(127);  // the parent died before the prctl call
    }
    // Before exec: the program's libraries count the cores when they are loaded.
    if (!place.cores.apply()) {
        fail(true);
    }
    // Also before exec: the program's threads inherit it. Both are plain system calls. If a sandbox forbids them, the
    // job runs with the old value rather than not at all. The kernel limits the sum to 19.
    if (place.nice != 0) {
        static_cast<void>(::setpriority(PRIO_PROCESS, 0, ::getpriority(PRIO_PROCESS, 0) + place.nice));
    }
    prefer_to_be_killed();
    // exec resets handlers, but ignored and blocked signals would stay so.
    struct sigaction usual{};
    usual.sa_handler = SIG_DFL;
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGCHLD, SIGUSR1, SIGUSR2}) {
        ::sigaction(signal, &usual, nullptr);
    }
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    if (::dup2(place.stdio ? fds.channel : fds.null, STDIN_FILENO) < 0 ||
        ::dup2(place.stdio ? fds.channel : fds.output, STDOUT_FILENO) < 0 || ::dup2(fds.output, STDERR_FILENO) < 0 ||
        (!place.stdio && ::dup2(fds.channel, kWorkerProtocolFd) < 0)) {
        fail();
    }
    // Sockets that Asio opened are not close-on-exec; without this the child would hold our listening port.
    const unsigned first = kWorkerProtocolFd + (place.stdio ? 0 : 1);
    if (::syscall(SYS_close_range, first, ~0U, kCloseRangeCloexec) != 0) {
        for (int fd = static_cast<int>(first); fd < fd_limit; ++fd) {
            ::fcntl(fd, F_SETFD, FD_CLOEXEC);
        }
    }
    ::execve(program, arguments, environment);
    fail();
    ::_exit(127);
}

}  // namespace

Result<Child> start_child(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                          const std::vector<std::string>& environment, const std::vector<std::uint32_t>& cores,
                          int nice, ChannelAt channel_at) {
    const std::string failed = "cannot start " + program.string();
    std::array<int, 2> pair{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) != 0) {
        return system_error_of(failed, errno);
    }
    Descriptor channel(pair[0]);
    Descriptor child_channel(pair[1]);
    if (::pipe2(pair.data(), O_CLOEXEC) != 0) {
        return system_error_of(failed, errno);
    }
    Descriptor output(pair[0]);
    Descriptor child_output(pair[1]);
    if (::pipe2(pair.data(), O_CLOEXEC) != 0) {
        return system_error_of(failed, errno);
    }
    Descriptor report(pair[0]);
    Descriptor child_report(pair[1]);
    Descriptor null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!null) {
        return system_error_of("/dev/null", errno);
    }
    if (!raise(child_channel) || !raise(child_output) || !raise(child_report) || !raise(null)) {
        return system_error_of(failed, errno);
    }

    const std::string path = program.string();
    std::vector<std::string> argument_texts{path};
    argument_texts.insert(argument_texts.end(), arguments.begin(), arguments.end());
    std::vector<std::string> environment_texts(environment);
    const std::vector<char*> argument_pointers = pointers(argument_texts);
    const std::vector<char*> environment_pointers = pointers(environment_texts);
    const ChildFds fds{child_channel.get(), child_output.get(), null.get(), child_report.get()};
    rlimit limit{};
    const bool known = ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < 1U << 20;
    const int fd_limit = known ? static_cast<int>(limit.rlim_cur) : 1 << 16;

    const ChildPlace place{CoreSet(cores), nice, channel_at == ChannelAt::stdio};
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid < 0) {
        return system_error_of(failed, errno);
    }
    if (pid == 0) {
        become(path.c_str(), argument_pointers.data(), environment_pointers.data(), fds, parent, fd_limit, place);
    }
    child_report = Descriptor();
    StartFailure failure;
    ssize_t got = 0;
    do {
        got = ::read(report.get(), &failure, sizeof(failure));
    } while (got < 0 && errno == EINTR);
    if (got != 0) {
        ::waitpid(pid, nullptr, 0);
        if (got != sizeof(failure)) {
            return system_error_of(failed, EIO);
        }
        return system_error_of(failure.cores ? failed + " on cores " + core_list(cores) : failed, failure.number);
    }
    Child child;
    child.pid = pid;
    child.channel = channel.release();
    child.output = output.release();
    child.exit_event = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
    return child;
}

asio::awaitable<int> await_child(asio::posix::stream_descriptor& exit_event, pid_t pid) {
    asio::steady_timer poll(exit_event.get_executor());
    for (;;) {
        if (exit_event.is_open()) {
            const auto waited = co_await exit_event.async_wait(asio::posix::stream_descriptor::wait_read, kTuple);
            boost::system::error_code ignored;
            if (std::get<0>(waited)) {
                exit_event.close(ignored);  // continue by polling
            }
        } else {
            poll.expires_after(kReapPoll);
            co_await poll.async_wait(kTuple);
        }
        int status = 0;
        const pid_t reaped = ::waitpid(pid, &status, WNOHANG);
        if (reaped == pid || (reaped < 0 && errno != EINTR)) {
            co_return reaped < 0 ? 0 : status;
        }
    }
}

int shell_exit_code(int status) {
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::string describe_exit(int status) {
    if (!WIFSIGNALED(status)) {
        return "exited with code " + std::to_string(WEXITSTATUS(status));
    }
    const int signal = WTERMSIG(status);
    return "was killed by signal " + std::to_string(signal) + " (" + ::strsignal(signal) + ")";
}

}  // namespace distilld
