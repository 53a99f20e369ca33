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
#include <functional>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>

#include "base/cores.hpp"
#include "server/supervisor/worker_environment.hpp"
#include "tests/unit/server/supervisor/fake_worker_run.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using test::fake;
using test::Outcome;
using ::testing::Contains;
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

TEST(WorkerEnvironment, PassesOnWhatAWorkerNeedsAndTheKeyOfItsJob) {
    for (const char* name : {"OMP_NUM_THREADS", "LC_ALL", "CUDA_VISIBLE_DEVICES", "DISTILLD_KEYS_DIR",
                             "DISTILLD_TEACHER_HOSTS", "DISTILLD_API_KEY", "DISTILLD_ADMIN_KEY", "DISTILLD_KEY_A",
                             "DISTILLD_KEY_AB", "AWS_SECRET_ACCESS_KEY", "OMPX", "LANGX", "SHELL_LIKE"}) {
        ::setenv(name, "ours", 1);
    }
    const std::vector<std::string> settings{"OMP_NUM_THREADS=2"};
    const auto plain = child_environment(settings, R"({"name":"x"})");
    EXPECT_THAT(plain, ::testing::IsSupersetOf({"OMP_NUM_THREADS=2", "LC_ALL=ours", "CUDA_VISIBLE_DEVICES=ours",
                                                "DISTILLD_KEYS_DIR=ours", "DISTILLD_TEACHER_HOSTS=ours"}));
    EXPECT_THAT(plain, Contains(::testing::StartsWith("PATH=")));
    EXPECT_THAT(plain, Not(Contains("OMP_NUM_THREADS=ours")));
    for (const char* name :
         {"DISTILLD_KEY_", "DISTILLD_API_", "DISTILLD_ADMIN_", "AWS_", "OMPX", "LANGX", "SHELL_LIKE"}) {
        EXPECT_THAT(plain, Not(Contains(::testing::StartsWith(name))));
    }
    const auto keyed = child_environment({}, R"({"teacher":{"api_key_env":"DISTILLD_KEY_A"}})");
    EXPECT_THAT(keyed, Contains("DISTILLD_KEY_A=ours"));
    EXPECT_THAT(keyed, Not(Contains("DISTILLD_KEY_AB=ours")));
    // What the spec's check would refuse is not passed on either.
    const auto sly = child_environment({}, R"({"teacher":{"api_key_env":"AWS_SECRET_ACCESS_KEY"}})");
    EXPECT_THAT(sly, Not(Contains("AWS_SECRET_ACCESS_KEY=ours")));
    EXPECT_THAT(child_environment({}, "no JSON"), Not(Contains("DISTILLD_KEY_A=ours")));
    for (const char* name : {"OMP_NUM_THREADS", "LC_ALL", "CUDA_VISIBLE_DEVICES", "DISTILLD_KEYS_DIR",
                             "DISTILLD_TEACHER_HOSTS", "DISTILLD_API_KEY", "DISTILLD_ADMIN_KEY", "DISTILLD_KEY_A",
                             "DISTILLD_KEY_AB", "AWS_SECRET_ACCESS_KEY", "OMPX", "LANGX", "SHELL_LIKE"}) {
        ::unsetenv(name);
    }
}

TEST(WorkerEnvironment, KeysOfASinkGoToTheOperatorsOwnServerAlone) {
    const std::vector<std::pair<const char*, const char*>> variables{
        {"MLFLOW_TRACKING_URI", "https://mlflow.our.org"},
        {"MLFLOW_TRACKING_TOKEN", "secret"},
        {"MLFLOW_EXPERIMENT_NAME", "plain"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/x"},
        {"OTEL_EXPORTER_OTLP_HEADERS", "secret"},
    };
    for (const auto& [name, value] : variables) {
        ::setenv(name, value, 1);
    }
    const auto passed_on = [](const std::string& name, const std::string& metrics) {
        const auto environment = child_environment({}, R"({"metrics":{)" + metrics + "}}");
        return std::ranges::any_of(environment,
                                   [&](const std::string& entry) { return entry.starts_with(name + "="); });
    };
    EXPECT_TRUE(passed_on("MLFLOW_EXPERIMENT_NAME", ""));
    EXPECT_TRUE(passed_on("OTEL_EXPORTER_OTLP_ENDPOINT", ""));
    EXPECT_TRUE(passed_on("MLFLOW_TRACKING_TOKEN", R"("mlflow_url":"https://mlflow.our.org:443/sub")"));
    for (const char* foreign :
         {"", R"("mlflow_url":"https://mlflow.their.org")", R"("mlflow_url":"http://mlflow.our.org")",
          R"("mlflow_url":"https://mlflow.our.org:8443")"}) {
        EXPECT_FALSE(passed_on("MLFLOW_TRACKING_TOKEN", foreign)) << foreign;
    }
    EXPECT_TRUE(passed_on("OTEL_EXPORTER_OTLP_HEADERS", ""));
    EXPECT_TRUE(passed_on("OTEL_EXPORTER_OTLP_HEADERS", R"("otlp_url":"http://collector:4318")"));
    EXPECT_FALSE(passed_on("OTEL_EXPORTER_OTLP_HEADERS", R"("otlp_url":"http://elsewhere:4318")"));
    for (const auto& [name, value] : variables) {
        ::unsetenv(name);
    }
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

TEST(WorkerEnvironment, SpinsBrieflyAndRepeatsItsBitsUnlessTheUserChose) {
    for (const char* name : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "CUBLAS_WORKSPACE_CONFIG"}) {
        ::unsetenv(name);
    }
    EXPECT_THAT(worker_environment(), ElementsAre("GOMP_SPINCOUNT=1000", "CUBLAS_WORKSPACE_CONFIG=:4096:8"));
    ::setenv("GOMP_SPINCOUNT", "100", 1);
    EXPECT_THAT(worker_environment(), ElementsAre("CUBLAS_WORKSPACE_CONFIG=:4096:8"));
    ::setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8", 1);
    EXPECT_TRUE(worker_environment().empty());
    ::unsetenv("GOMP_SPINCOUNT");
    ::unsetenv("CUBLAS_WORKSPACE_CONFIG");
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
