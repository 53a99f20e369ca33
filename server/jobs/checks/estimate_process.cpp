#include "server/jobs/checks/estimate_process.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/thread_pool.hpp>
#include <cerrno>
#include <csignal>
#include <exception>
#include <fstream>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "base/files/descriptor.hpp"
#include "base/files/files.hpp"
#include "base/files/open_file.hpp"
#include "base/json_fields.hpp"
#include "base/json_text.hpp"
#include "base/scope_exit.hpp"
#include "pipeline/async/condition.hpp"
#include "pipeline/async/deadline.hpp"
#include "pipeline/async/run_on.hpp"
#include "server/protocol/line_channel.hpp"
#include "server/supervisor/child_process.hpp"
#include "server/supervisor/worker_environment.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
namespace json = boost::json;

constexpr std::size_t kMaxRequestBytes = std::size_t{64} << 20U;
constexpr std::size_t kMaxAnswerBytes = std::size_t{1} << 20U;
constexpr std::size_t kMaxDepth = 16;
constexpr std::uint64_t kMaxMoreBytes = std::uint64_t{2} << 30U;
constexpr const char* kEstimate = "estimate";
constexpr const char* kFailure = "failure";

/// Shared by the estimates of a service. Used on their executor, except `thread`.
struct Shared {
    explicit Shared(EstimateProcessOptions options_in) : options(std::move(options_in)) {}
    Shared(const Shared&) = delete;
    Shared& operator=(const Shared&) = delete;
    ~Shared() { thread.join(); }  // everything has been reaped by then

    EstimateProcessOptions options;
    std::optional<Condition> freed;  ///< a turn is free
    std::uint32_t running = 0;
    asio::thread_pool thread{1};  ///< starts processes and reaps them
};

/// Owns the process: its destructor ends it.
class RunningProcess {
  public:
    RunningProcess(Shared& shared, const Child& child)
        : shared_(shared), pid_(child.pid), channel_(child.channel), output_(child.output), exited_(child.exit_event) {}
    RunningProcess(const RunningProcess&) = delete;
    RunningProcess& operator=(const RunningProcess&) = delete;
    ~RunningProcess() {
        ::kill(-pid_, SIGKILL);
        asio::post(shared_.thread, [pid = pid_] { reap(pid); });
    }

    [[nodiscard]] int take_channel() { return channel_.release(); }

  private:
    /// Gives up on a process that hangs in the kernel.
    static void reap(pid_t pid) {
        constexpr int kTries = 500;
        for (int tries = 0; tries < kTries && ::waitpid(pid, nullptr, WNOHANG) == 0; ++tries) {
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
    }

    Shared& shared_;
    pid_t pid_;
    Descriptor channel_;
    Descriptor output_;  ///< of stderr; nobody reads it
    Descriptor exited_;
};

Result<json::object> read_answer(const std::string& line) {
    const auto parsed = parse_json_text(line, kMaxDepth);
    const auto* answer = parsed ? parsed->if_object() : nullptr;
    const auto* estimate = answer != nullptr ? answer->if_contains(kEstimate) : nullptr;
    if (estimate != nullptr && estimate->is_object()) {
        return estimate->get_object();
    }
    const auto* failure = answer != nullptr ? answer->if_contains(kFailure) : nullptr;
    const bool told = failure != nullptr && failure->is_string();
    return io_error(told ? std::string(failure->get_string()) : "its process answered something else");
}

asio::awaitable<Result<json::object>> run_estimate(std::shared_ptr<Shared> shared, EstimateRequest request) {
    const auto executor = co_await asio::this_coro::executor;
    if (!shared->freed) {
        shared->freed.emplace(executor);
    }
    const auto turn_by = std::chrono::steady_clock::now() + shared->options.turn_deadline;
    while (shared->running >= shared->options.at_once) {
        if (!co_await shared->freed->wait(turn_by)) {
            co_return io_error("other estimates are in progress and take long; ask again");
        }
    }
    ++shared->running;
    const ScopeExit turn([&shared] {
        --shared->running;
        shared->freed->notify();
    });
    // Not `shared` itself: the thread that runs this must not hold the last reference.
    auto start = [held = shared.get()]() -> Result<std::unique_ptr<RunningProcess>> {
        const EstimateProcessOptions& options = held->options;
        const auto child = start_child(options.program, options.arguments, child_environment({}, nullptr));
        if (!child) {
            return child.error();
        }
        return std::make_unique<RunningProcess>(*held, *child);
    };
    const auto process = co_await run_on(shared->thread.get_executor(), std::move(start));
    if (!process) {
        co_return process.error();
    }
    LineChannel lines(executor, (*process)->take_channel(), kMaxAnswerBytes);
    lines.send(to_text(write_fields(request)) + "\n", false);
    auto receiving = lines.receive();
    const auto received = co_await with_deadline(std::move(receiving), shared->options.deadline);
    if (!received) {
        co_return io_error("it was not made within " + std::to_string(shared->options.deadline.count()) +
                           " ms: reading the tokenizer or the data takes too long");
    }
    if (!*received) {
        co_return received->error();
    }
    if (!**received) {
        co_return io_error("its process ended early: reading the tokenizer or the data takes too much memory");
    }
    co_return read_answer(***received);
}

/// Reads up to a line feed, which is left out; nullopt: the other end is gone, or the line is too long.
std::optional<std::string> read_line(int channel) {
    std::string line;
    std::array<char, 4096> bytes{};
    while (line.size() <= kMaxRequestBytes) {
        const ssize_t count = ::read(channel, bytes.data(), bytes.size());
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            return std::nullopt;
        }
        line.append(bytes.data(), static_cast<std::size_t>(count));
        if (line.ends_with('\n')) {
            line.pop_back();
            return line;
        }
    }
    return std::nullopt;
}

/// Memory mapped by the program itself: with a sanitizer that is more than the machine has.
std::uint64_t mapped_bytes() {
    std::uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

json::object answer_to(EstimateRequest request) {
    try {
        if (request.files) {
            confine_files(*request.files);
        }
        return {{kEstimate, estimate_job(request)}};
    } catch (const std::bad_alloc&) {
        return {{kFailure, "reading the tokenizer or the data takes too much memory"}};
    } catch (const std::exception& error) {
        return {{kFailure, error.what()}};
    }
}

}  // namespace

EstimateRunner make_estimate_processes(EstimateProcessOptions options) {
    // Shared with the estimates in progress.
    return [shared = std::make_shared<Shared>(std::move(options))](EstimateRequest request) {
        return run_estimate(shared, std::move(request));
    };
}

int answer_estimate(int channel) {
    std::signal(SIGPIPE, SIG_IGN);  // nobody reads our stderr
    const std::uint64_t max_bytes = mapped_bytes() + kMaxMoreBytes;
    const rlimit limit{max_bytes, max_bytes};
    static_cast<void>(::setrlimit(RLIMIT_AS, &limit));
    const auto line = read_line(channel);
    const auto parsed = line ? parse_json_text(*line, kMaxDepth) : parse_json_text("null", kMaxDepth);
    EstimateRequest request;
    if (!parsed || !parsed->is_object() || !read_fields(parsed->get_object(), request)) {
        return 1;
    }
    const std::string answer = to_text(answer_to(std::move(request))) + "\n";
    return write_all(channel, std::as_bytes(std::span(answer)), "the answer") ? 0 : 1;
}

}  // namespace distilld
