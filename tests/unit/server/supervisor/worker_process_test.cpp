#include "server/supervisor/worker_process.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>

#include "base/cores.hpp"
#include "tests/unit/server/supervisor/fake_worker_run.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using test::fake;
using test::Outcome;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// Runs to the end. `on_event` may use the process and the signal that cancels it.
Outcome run(const WorkerProcessOptions& options,
            const std::function<void(WorkerProcess&, asio::cancellation_signal&, const WorkerEvent&)>& on_event = {},
            const std::function<void(asio::io_context&, WorkerProcess&, asio::cancellation_signal&)>& at_once = {}) {
    asio::io_context context;
    asio::cancellation_signal cancel;
    auto process = make_worker_process(context.get_executor(), options);
    Outcome outcome;
    WorkerStart start;
    start.spec_json = "{\"name\":\"test\"}";
    start.resume = true;
    start.trace_file = "trace.json";
    std::exception_ptr thrown;
    auto done = [&](const std::exception_ptr& failure, Result<WorkerExit> exit) {
        thrown = failure;
        outcome.exit = std::move(exit);
    };
    auto handler = [&](const WorkerEvent& event) {
        outcome.events.push_back(event);
        if (on_event) {
            on_event(*process, cancel, event);
        }
    };
    asio::co_spawn(context, process->run(start, handler), asio::bind_cancellation_slot(cancel.slot(), done));
    if (at_once) {
        at_once(context, *process, cancel);
    }
    context.run_for(std::chrono::seconds(60));
    if (!outcome.exit) {
        throw std::runtime_error("the run did not end");
    }
    if (thrown) {
        std::rethrow_exception(thrown);
    }
    return outcome;
}

TEST(WorkerProcess, RunsAWorkerToItsEnd) {
    auto options = fake("finish");
    options.environment = {"FAKE_WORKER_VALUE=a value"};
    std::vector<std::string> lines;
    options.forward_stderr = true;
    options.stderr_sink = [&lines](const std::string& line) { lines.push_back(line); };
    const Outcome outcome = run(options);
    EXPECT_EQ(outcome.exit_code(), 0);
    ASSERT_EQ(outcome.events.size(), 5U);
    const auto started = std::get<StartedEvent>(outcome.events[0]);
    EXPECT_EQ(started.first_step, 1U);
    EXPECT_EQ(started.dtype, "{\"name\":\"test\"}");
    EXPECT_EQ(started.teacher, "trace.json");
    EXPECT_EQ(std::get<LogEvent>(outcome.events[1]).message, "a value");
    EXPECT_EQ(std::get<ProgressEvent>(outcome.events[2]).step, 1U);
    EXPECT_EQ(std::get<ProgressEvent>(outcome.events[3]).step, 2U);
    EXPECT_EQ(std::get<FinishedEvent>(outcome.events[4]).weights_sha256, "abc");
    EXPECT_THAT(lines, ::testing::UnorderedElementsAre("a word on stderr", "a word on stdout"));
    EXPECT_THAT(outcome.exit->value().stderr_tail, HasSubstr("a word on stderr\n"));
}

WorkerProcessOptions fake_at_stdio(const std::string& behaviour) {
    auto options = fake(behaviour);
    options.channel = ChannelAt::stdio;
    options.arguments.emplace_back("--stdio");
    return options;
}

TEST(WorkerProcess, SpeaksOverStdinAndStdout) {
    auto options = fake_at_stdio("finish");
    std::vector<std::string> lines;
    options.forward_stderr = true;
    options.stderr_sink = [&lines](const std::string& line) { lines.push_back(line); };
    const Outcome outcome = run(options);
    EXPECT_EQ(outcome.exit_code(), 0);
    ASSERT_EQ(outcome.events.size(), 5U);
    EXPECT_EQ(std::get<StartedEvent>(outcome.events[0]).dtype, "{\"name\":\"test\"}");
    EXPECT_EQ(std::get<FinishedEvent>(outcome.events[4]).weights_sha256, "abc");
    EXPECT_THAT(lines, ::testing::UnorderedElementsAre("a word on stderr", "a word on stdout"))
        << "what it prints is not taken for its messages";
    const auto cancel = [](WorkerProcess&, asio::cancellation_signal& signal, const WorkerEvent&) {
        signal.emit(asio::cancellation_type::terminal);
    };
    const auto order = [](asio::io_context&, WorkerProcess& process, asio::cancellation_signal&) {
        process.send(CheckpointCommand{});
    };
    const Outcome stopped = run(fake_at_stdio("obey"), cancel, order);
    EXPECT_EQ(stopped.of<CheckpointEvent>().size(), 1U);
    EXPECT_EQ(stopped.of<CancelledEvent>().size(), 1U);
    EXPECT_EQ(stopped.exit_code(), 130);
}

TEST(WorkerProcess, RunsOnItsCoresAndSeesItsGpu) {
    const auto all = allowed_cores();
    auto options = fake("slot");
    options.cores = {all.back()};
    options.environment = {"CUDA_VISIBLE_DEVICES=GPU-7"};
    ::setenv("CUDA_VISIBLE_DEVICES", "GPU-6,GPU-7", 1);
    EXPECT_EQ(run(options).of<LogEvent>().at(0).message, std::to_string(all.back()) + " GPU-7");
    ::unsetenv("CUDA_VISIBLE_DEVICES");
    EXPECT_EQ(run(fake("slot")).of<LogEvent>().at(0).message, core_list(all) + " -");
    EXPECT_EQ(allowed_cores(), all) << "the child's cores are not ours";
}

TEST(WorkerProcess, SaysWhichCoresItCannotHave) {
    auto options = fake("slot");
    options.cores = {100'000, 100'001};
    const Outcome outcome = run(options);
    ASSERT_FALSE(*outcome.exit);
    EXPECT_THAT(outcome.exit->error().message, HasSubstr("fake_worker on cores 100000-100001: Invalid argument"));
}

/// The nice value in a line of /proc/PID/stat. The name in parentheses may hold anything, so count from its end.
int nice_of(const std::string& stat) {
    std::istringstream fields(stat.substr(stat.rfind(')') + 2));
    std::string field;
    for (int number = 3; number <= 19; ++number) {  // proc(5) counts from 1; the name is the second
        fields >> field;
    }
    return std::stoi(field);
}

TEST(WorkerProcess, IsNicerThanUsByAsMuchAsIsAsked) {
    const int ours = ::getpriority(PRIO_PROCESS, 0);
    const auto nice_with = [](int nice) {
        auto options = fake("stat");
        options.nice = nice;
        return nice_of(run(options).of<LogEvent>().at(0).message);
    };
    EXPECT_EQ(nice_with(0), ours);
    EXPECT_EQ(nice_with(3), std::min(ours + 3, 19));
    EXPECT_EQ(nice_with(19), 19) << "beyond 19 there is nothing";
    EXPECT_EQ(::getpriority(PRIO_PROCESS, 0), ours) << "the child's nice value is not ours";
}

TEST(WorkerProcess, IsKilledBeforeUsWhereMemoryRunsOut) {
    std::string ours;
    std::ifstream("/proc/self/oom_score_adj") >> ours;
    const int worker = std::stoi(run(fake("oom_score_adj")).of<LogEvent>().at(0).message);
    EXPECT_EQ(worker, std::max(500, std::stoi(ours)));
}

TEST(WorkerProcess, PassesOnAFailure) {
    const Outcome outcome = run(fake("fail"));
    EXPECT_EQ(outcome.exit_code(), 1);
    EXPECT_EQ(outcome.failure().kind, "teacher");
    EXPECT_EQ(outcome.failure().message, "the teacher is gone");
}

TEST(WorkerProcess, NamesTheSignalOfACrash) {
    const Outcome outcome = run(fake("crash"));
    EXPECT_EQ(outcome.exit_code(), 128 + SIGSEGV);
    EXPECT_EQ(outcome.of<ProgressEvent>().size(), 1U);
    EXPECT_EQ(outcome.failure().kind, kWorkerKilled);
    EXPECT_THAT(outcome.failure().message, HasSubstr("signal 11"));
    EXPECT_THAT(outcome.failure().message, HasSubstr("about to crash"));
}

TEST(WorkerProcess, NamesTheExitCodeOfAnEarlyEnd) {
    const Outcome outcome = run(fake("exit_early"));
    EXPECT_EQ(outcome.exit_code(), 5);
    EXPECT_EQ(outcome.failure().kind, kWorkerNotStarted) << "it was not told its job";
    EXPECT_THAT(outcome.failure().message, HasSubstr("exited with code 5"));
    EXPECT_THAT(outcome.failure().message, HasSubstr("cannot load libtorch"));
}

TEST(WorkerProcess, MakesUtf8OfWhatAWorkerSays) {
    auto options = fake("latin1");
    std::vector<std::string> lines;
    options.forward_stderr = true;
    options.stderr_sink = [&lines](const std::string& line) { lines.push_back(line); };
    const Outcome outcome = run(options);
    EXPECT_EQ(outcome.of<LogEvent>().at(0).message, "the teacher says: d\uFFFDj\uFFFD vu");
    EXPECT_THAT(outcome.failure().message, HasSubstr("its last line on stderr: caf\uFFFD ferm\uFFFD"));
    EXPECT_THAT(lines, ElementsAre("caf\uFFFD ferm\uFFFD"));
    EXPECT_EQ(outcome.exit->value().stderr_tail, "caf\uFFFD ferm\uFFFD\n");
}

TEST(WorkerProcess, EndsAWorkerThatDoesNotSpeakTheProtocol) {
    EXPECT_THAT(run(fake("garbage")).failure().message, HasSubstr("not JSON"));
    EXPECT_THAT(run(fake("no_newline")).failure().message, HasSubstr("longer than"));
    EXPECT_THAT(run(fake("event_before_hello")).failure().message, HasSubstr("hello"));
    EXPECT_THAT(run(fake("wrong_version")).failure().message, HasSubstr("version 99"));
}

TEST(WorkerProcess, EndsAWorkerThatNeverReports) {
    auto options = fake("no_hello");
    options.hello_timeout = std::chrono::seconds(1);
    const Outcome outcome = run(options);
    EXPECT_EQ(outcome.exit_code(), 128 + SIGKILL);
    EXPECT_THAT(outcome.failure().message, HasSubstr("did not report within 1 s"));
}

TEST(WorkerProcess, SendsCommandsInOrderEvenBeforeTheWorkerIsReady) {
    const Outcome outcome = run(fake("obey"), {}, [](asio::io_context&, WorkerProcess& process, auto&) {
        process.send(SetLimitCommand{3});
        process.send(CheckpointCommand{});
        process.send(CancelCommand{});
    });
    EXPECT_EQ(outcome.exit_code(), 130);
    ASSERT_EQ(outcome.events.size(), 3U);
    EXPECT_EQ(std::get<LogEvent>(outcome.events[0]).message, "limit 3");
    EXPECT_EQ(std::get<CheckpointEvent>(outcome.events[1]).step, 2U);
    EXPECT_EQ(std::get<CancelledEvent>(outcome.events[2]).checkpoint, "checkpoints/last");
}

void cancel_on_first_event(WorkerProcess&, asio::cancellation_signal& cancel, const WorkerEvent& event) {
    if (!std::holds_alternative<FailedEvent>(event)) {
        cancel.emit(asio::cancellation_type::terminal);
    }
}

TEST(WorkerProcess, CancellingAsksTheWorkerFirst) {
    const Outcome outcome =
        run(fake("obey"), cancel_on_first_event,
            [](asio::io_context&, WorkerProcess& process, auto&) { process.send(CheckpointCommand{}); });
    EXPECT_EQ(outcome.exit_code(), 130);
    EXPECT_EQ(outcome.of<CancelledEvent>().size(), 1U);
}

TEST(WorkerProcess, CancellingTerminatesADeafWorker) {
    auto options = fake("deaf");
    options.stop_grace = std::chrono::seconds(2);
    const Outcome outcome = run(options, cancel_on_first_event);
    EXPECT_EQ(outcome.exit_code(), 128 + SIGTERM);
    EXPECT_THAT(outcome.failure().message, HasSubstr("signal 15"));
}

TEST(WorkerProcess, CancellingKillsAStubbornWorker) {
    auto options = fake("stubborn");
    options.stop_grace = std::chrono::seconds(1);
    const Outcome outcome = run(options, cancel_on_first_event);
    EXPECT_EQ(outcome.exit_code(), 128 + SIGKILL);
    EXPECT_THAT(outcome.failure().message, HasSubstr("did not end within 1 s"));
}

TEST(WorkerProcess, CancellingBeforeTheHelloEndsTheWorkerAtOnce) {
    // Emitted from the queue: what is cancelled before its first step never starts at all.
    const Outcome outcome = run(fake("no_hello"), {}, [](asio::io_context& context, WorkerProcess&, auto& cancel) {
        asio::post(context, [&cancel] { cancel.emit(asio::cancellation_type::terminal); });
    });
    EXPECT_EQ(outcome.exit_code(), 128 + SIGKILL);
    ASSERT_EQ(outcome.events.size(), 1U);
    EXPECT_EQ(std::get<CancelledEvent>(outcome.events[0]).checkpoint, "");
}

TEST(WorkerProcess, KillEndsTheWorkerAtOnce) {
    const Outcome outcome = run(fake("stubborn"), [](WorkerProcess& process, auto&, const WorkerEvent& event) {
        if (std::holds_alternative<ProgressEvent>(event)) {
            process.kill();
        }
    });
    EXPECT_EQ(outcome.exit_code(), 128 + SIGKILL);
    EXPECT_EQ(outcome.failure().kind, "internal");
    EXPECT_THAT(outcome.failure().message, HasSubstr("on request"));
}

TEST(WorkerProcess, EndsAWorkerThatStaysAfterItsLastWord) {
    auto options = fake("linger");
    options.stop_grace = std::chrono::seconds(1);
    const Outcome outcome = run(options);
    EXPECT_EQ(outcome.exit_code(), 128 + SIGKILL);
    EXPECT_EQ(outcome.of<FinishedEvent>().size(), 1U);
    EXPECT_EQ(outcome.of<FailedEvent>().size(), 0U);
}

TEST(WorkerProcess, EndsAWorkerThatClosesItsChannel) {
    auto options = fake("close_channel");
    options.stop_grace = std::chrono::seconds(1);
    EXPECT_THAT(run(options).failure().message, HasSubstr("did not end within"));
}

TEST(WorkerProcess, TakesAFloodOfEventsInOrder) {
    const Outcome outcome = run(fake("flood"));
    EXPECT_EQ(outcome.exit_code(), 0);
    const auto progress = outcome.of<ProgressEvent>();
    ASSERT_EQ(progress.size(), 20000U);
    for (std::size_t i = 0; i < progress.size(); ++i) {
        ASSERT_EQ(progress[i].step, i + 1);
    }
    EXPECT_EQ(outcome.of<FinishedEvent>().size(), 1U);
}

TEST(WorkerProcess, DoesNotWaitForWhatTheWorkerLeftBehind) {
    const Outcome outcome = run(fake("leave_child"));
    EXPECT_EQ(outcome.exit_code(), 0);
    EXPECT_EQ(outcome.of<FinishedEvent>().size(), 1U);
}

TEST(WorkerProcess, InheritsNoDescriptorAndHasItsOwnGroup) {
    asio::io_context context;
    const asio::ip::tcp::acceptor open(context, asio::ip::tcp::endpoint(asio::ip::address_v4::loopback(), 0));
    const Outcome outcome = run(fake("descriptors"));
    EXPECT_EQ(outcome.of<LogEvent>().at(0).message, "open: own group");
}

TEST(WorkerProcess, NamesAProgramThatCannotBeStarted) {
    auto options = fake("finish");
    options.program = "/nonexistent/distilld-worker";
    const Outcome outcome = run(options);
    ASSERT_FALSE(outcome.exit->has_value());
    EXPECT_THAT(outcome.exit->error().message, HasSubstr("/nonexistent/distilld-worker: No such file"));
    EXPECT_TRUE(outcome.events.empty());
}

TEST(WorkerProcess, AnEventHandlerThatThrowsEndsTheRun) {
    EXPECT_THROW(
        run(
            fake("obey"), [](WorkerProcess&, auto&, const WorkerEvent&) { throw std::runtime_error("no room"); },
            [](asio::io_context&, WorkerProcess& process, auto&) { process.send(CheckpointCommand{}); }),
        std::runtime_error);
}

TEST(WorkerProcess, DestructionKillsTheWorker) {
    asio::io_context context;
    auto options = fake("stubborn");
    auto process = make_worker_process(context.get_executor(), options);
    bool running = false;
    WorkerStart start;
    start.spec_json = "{}";
    asio::co_spawn(context, process->run(start, [&running](const WorkerEvent&) { running = true; }), asio::detached);
    while (!running) {
        context.run_one_for(std::chrono::seconds(20));
    }
    EXPECT_TRUE(running);
    // No orderly end: process and context go; the test would hang in waitpid if the child lived on.
}

TEST(WorkerEnvironment, IsAllThatAWorkerHas) {
    ::setenv("DISTILLD_KEY_OTHER", "secret", 1);
    ::setenv("SOME_TOKEN", "secret", 1);
    const Outcome outcome = run(fake("environment"));
    ::unsetenv("DISTILLD_KEY_OTHER");
    ::unsetenv("SOME_TOKEN");
    EXPECT_GE(outcome.of<LogEvent>().size(), 1U);
    for (const auto& entry : outcome.of<LogEvent>()) {
        EXPECT_THAT(entry.message, Not(HasSubstr("secret")));
    }
}

TEST(WorkerProcess, ToldByTheKernelKnowsAKillForLackOfMemory) {
    for (const bool counted : {true, false}) {
        auto options = fake("killed");
        std::uint64_t kills = 4;
        options.oom_kills = [&kills, counted] { return std::optional(counted ? kills++ : kills); };
        const auto failure = run(options).failure();
        EXPECT_EQ(failure.kind, counted ? kWorkerOutOfMemory : kWorkerKilled);
        EXPECT_THAT(failure.message, HasSubstr(counted ? "the kernel killed the worker because memory ran out"
                                                       : "the worker was killed by signal 9 (Killed)"));
    }
}

TEST(WorkerProcess, AKillOfOursIsNone) {
    auto options = fake("deaf");
    std::uint64_t kills = 4;
    options.oom_kills = [&kills] { return std::optional(kills++); };
    const auto failure = run(options, [](WorkerProcess& process, auto&, const auto&) { process.kill(); }).failure();
    EXPECT_EQ(failure.kind, "internal");
}

TEST(WorkerProcess, KnowsTheLastWordsOfAProgramWithoutMemory) {
    const auto failure = run(fake("throw")).failure();
    EXPECT_EQ(failure.kind, kWorkerOutOfMemory);
    EXPECT_THAT(failure.message, HasSubstr("std::bad_alloc"));
}

}  // namespace
}  // namespace distilld
