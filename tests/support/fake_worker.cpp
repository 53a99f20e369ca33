// A worker that behaves as its first argument says: what the supervisor's tests start in place of distilld-worker.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "base/cores.hpp"
#include "server/protocol/stdio_bridge.hpp"
#include "server/protocol/worker_protocol.hpp"

namespace {

using namespace distilld;

/// To the service.
int channel_fd = kWorkerProtocolFd;

void send(const std::string& text) {
    std::string_view rest = text;
    while (!rest.empty()) {
        const ssize_t sent = ::send(channel_fd, rest.data(), rest.size(), MSG_NOSIGNAL);
        if (sent <= 0) {
            std::_Exit(9);
        }
        rest.remove_prefix(static_cast<std::size_t>(sent));
    }
}
void send(const UpMessage& message) {
    send(encode(message));
}

/// The next order; nullopt at the end of the stream.
std::optional<DownMessage> receive() {
    static std::string buffer;
    for (;;) {
        const auto end = buffer.find('\n');
        if (end != std::string::npos) {
            auto message = decode_down(std::string_view(buffer).substr(0, end));
            buffer.erase(0, end + 1);
            return message.value();
        }
        char piece[4096];
        const ssize_t got = ::read(channel_fd, piece, sizeof(piece));
        if (got <= 0) {
            return std::nullopt;
        }
        buffer.append(piece, static_cast<std::size_t>(got));
    }
}

[[noreturn]] void wait_for_ever() {
    for (;;) {
        ::pause();
    }
}

ProgressEvent progress(std::uint64_t step, std::uint64_t total) {
    ProgressEvent event;
    event.step = step;
    event.total_steps = total;
    event.loss = 1.0 / static_cast<double>(step);
    return event;
}

void finish(std::uint64_t step) {
    FinishedEvent event;
    event.last = progress(step, step);
    event.output = "out";
    event.weights_sha256 = "abc";
    send(UpMessage(event));
}

/// Sends the hello and takes the start.
WorkerStart begin() {
    send(UpMessage(HelloMessage{kWorkerProtocolVersion, static_cast<std::int64_t>(::getpid())}));
    const auto message = receive();
    if (!message) {
        std::_Exit(8);
    }
    return std::get<WorkerStart>(*message);
}

}  // namespace

int behave(const std::string& behaviour);

int main(int argc, char** argv) {
    const std::string behaviour = argc > 1 ? argv[1] : "";
    if (argc < 3 || std::string(argv[2]) != "--stdio") {
        return behave(behaviour);
    }
    const auto bridge = StdioBridge::take_over().value();
    channel_fd = bridge->release_socket();
    const int code = behave(behaviour);
    ::close(channel_fd);
    return code;
}

int behave(const std::string& behaviour) {
    if (behaviour == "no_hello") {
        wait_for_ever();
    }
    if (behaviour == "exit_early") {
        std::fputs("first line\ncannot load libtorch\n", stderr);
        return 5;
    }
    if (behaviour == "garbage") {
        begin();
        send(std::string("this is no JSON\n"));
        wait_for_ever();
    }
    if (behaviour == "no_newline") {
        begin();
        const std::string piece(1U << 20, 'x');
        for (int i = 0; i < 20; ++i) {
            send(piece);
        }
        wait_for_ever();
    }
    if (behaviour == "event_before_hello") {
        finish(1);
        wait_for_ever();
    }
    if (behaviour == "wrong_version") {
        send(std::string("{\"type\":\"hello\",\"version\":99,\"pid\":1}\n"));
        wait_for_ever();
    }

    const WorkerStart start = begin();
    if (behaviour == "slot") {
        const char* device = std::getenv("CUDA_VISIBLE_DEVICES");
        send(UpMessage(LogEvent{"info", core_list(allowed_cores()) + " " + (device != nullptr ? device : "-")}));
        finish(1);
        return 0;
    }
    if (behaviour == "stat" || behaviour == "oom_score_adj") {  // what the kernel says of it
        std::ifstream file("/proc/self/" + behaviour);
        std::string line;
        std::getline(file, line);
        send(UpMessage(LogEvent{"info", line}));
        finish(1);
        return 0;
    }
    if (behaviour == "finish") {
        std::puts("a word on stdout");
        std::fputs("a word on stderr\n", stderr);
        StartedEvent started;
        started.total_steps = 2;
        started.first_step = start.resume ? 1 : 0;
        started.dtype = start.spec_json;
        started.teacher = start.trace_file;
        const char* value = std::getenv("FAKE_WORKER_VALUE");
        send(UpMessage(started));
        send(UpMessage(LogEvent{"info", value == nullptr ? "unset" : value}));
        send(UpMessage(progress(1, 2)));
        send(UpMessage(progress(2, 2)));
        finish(2);
        return 0;
    }
    if (behaviour == "place") {
        const RankPlace place = start.rank.value_or(RankPlace());
        send(UpMessage(LogEvent{
            "warn", place.host + " " + std::to_string(place.port != 0) + ", attempt " + std::to_string(place.attempt) +
                        ", local " + std::to_string(place.local_rank) + " of " + std::to_string(place.local_count)}));
        finish(1);
        return 0;
    }
    if (behaviour == "limit") {
        const auto order = receive();
        const auto* given = order ? std::get_if<SetLimitCommand>(&*order) : nullptr;
        send(UpMessage(LogEvent{"warn", given != nullptr ? "limit " + std::to_string(given->max_concurrent) : "none"}));
        finish(1);
        return 0;
    }
    if (behaviour == "environment") {
        for (char** entry = environ; *entry != nullptr; ++entry) {
            send(UpMessage(LogEvent{"info", *entry}));
        }
        finish(1);
        return 0;
    }
    if (behaviour == "fail") {
        send(UpMessage(FailedEvent{"teacher", "the teacher is gone"}));
        return 1;
    }
    if (behaviour == "latin1") {
        send(UpMessage(LogEvent{"warn", "the teacher says: d\xE9j\xE0 vu"}));
        std::fputs("caf\xE9 ferm\xE9\n", stderr);
        return 3;
    }
    if (behaviour == "checkpoint_and_crash") {
        send(UpMessage(CheckpointEvent{1, "checkpoints/1", 0.5}));
    }
    if (behaviour == "crash_unless_resumed" && start.resume) {
        finish(2);
        return 0;
    }
    if (behaviour == "crash" || behaviour == "checkpoint_and_crash" || behaviour == "crash_unless_resumed") {
        send(UpMessage(progress(1, 2)));
        std::fputs("about to crash\n", stderr);
        std::signal(SIGSEGV, SIG_DFL);
        std::raise(SIGSEGV);
    }
    if (behaviour == "hog") {  // has no memory for more than 2 rows
        const std::string& spec = start.spec_json;
        const bool fits = spec.find("\"batch_size\":2,") != std::string::npos;
        StartedEvent started;
        started.first_step = start.resume ? 1 : 0;
        started.batch_size = fits ? 2 : spec.find("\"batch_size\":4,") != std::string::npos ? 4 : 8;
        started.micro_batches = 8 / started.batch_size;
        send(UpMessage(started));
        if (!fits) {
            send(UpMessage(FailedEvent{"out_of_memory", "no room"}));
            return 1;
        }
        finish(2);
        return 0;
    }
    if (behaviour == "throw") {
        send(UpMessage(progress(1, 2)));
        std::fputs("terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n",
                   stderr);
        std::abort();
    }
    if (behaviour == "killed") {
        send(UpMessage(progress(1, 2)));
        std::raise(SIGKILL);
    }
    if (behaviour == "obey") {
        for (std::uint64_t step = 1;; ++step) {
            const auto message = receive();
            if (!message) {
                return 7;
            }
            if (std::holds_alternative<CheckpointCommand>(*message)) {
                send(UpMessage(CheckpointEvent{step, "checkpoints/step", 0.5}));
            } else if (const auto* limit = std::get_if<SetLimitCommand>(&*message)) {
                send(UpMessage(LogEvent{"info", "limit " + std::to_string(limit->max_concurrent)}));
            } else if (std::holds_alternative<CancelCommand>(*message)) {
                send(UpMessage(CancelledEvent{step, "checkpoints/last"}));
                return 130;
            }
        }
    }
    if (behaviour == "deaf") {  // hears nothing, ends on SIGTERM
        send(UpMessage(progress(1, 2)));
        wait_for_ever();
    }
    if (behaviour == "stubborn") {  // nor on SIGTERM
        std::signal(SIGTERM, SIG_IGN);
        send(UpMessage(progress(1, 2)));
        wait_for_ever();
    }
    if (behaviour == "linger") {  // says its last word, does not leave
        finish(1);
        wait_for_ever();
    }
    if (behaviour == "close_channel") {
        ::close(kWorkerProtocolFd);
        wait_for_ever();
    }
    if (behaviour == "flood") {
        for (std::uint64_t step = 1; step <= 20000; ++step) {
            send(UpMessage(progress(step, 20000)));
        }
        finish(20000);
        return 0;
    }
    if (behaviour == "leave_child") {  // a child of its own keeps the pipes open
        if (::fork() == 0) {
            wait_for_ever();
        }
        finish(1);
        return 0;
    }
    if (behaviour == "descriptors") {
        // Descriptors that are open here beside 0–3: none of the parent's may be.
        std::string open;
        for (int fd = 4; fd < 1024; ++fd) {
            pollfd probe{fd, 0, 0};
            if (::poll(&probe, 1, 0) >= 0 && (probe.revents & POLLNVAL) == 0) {
                open += std::to_string(fd) + " ";
            }
        }
        send(UpMessage(LogEvent{"info", "open: " + open + (::getpgrp() == ::getpid() ? "own group" : "shared group")}));
        finish(1);
        return 0;
    }
    std::fprintf(stderr, "unknown behaviour '%s'\n", behaviour.c_str());
    return 2;
}
