#include "server/worker/eval/eval_program.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>

#include "base/scope_exit.hpp"
#include "pipeline/async/abort.hpp"
#include "tests/support/process_state.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Pair;

class EvalProgram : public ::testing::Test {
  protected:
    static EvalSpec shell(const std::string& script) {
        EvalSpec eval;
        eval.command = {"sh", "-c", script, "sh", "{checkpoint}", "at-{step}"};
        return eval;
    }
    FiguresEvent judged(const EvalSpec& eval) {
        std::optional<FiguresEvent> event;
        asio::co_spawn(context_, judge_student(eval, 7, folder_.path()),
                       [&event](const std::exception_ptr& thrown, FiguresEvent one) {
                           if (!thrown) {
                               event = std::move(one);
                           }
                       });
        context_.run();
        context_.restart();
        return event.value();
    }
    std::string problem_of(const std::string& script) { return judged(shell(script)).problem; }

    test::TemporaryFolder folder_;
    asio::io_context context_{1};
};

TEST_F(EvalProgram, SaysItsFiguresAboutTheFolderAndTheStep) {
    folder_.write("accuracy", "0.75");
    const FiguresEvent event =
        judged(shell(R"(echo reading; test "$1" = "$DISTILLD_CHECKPOINT" && test "$2" = at-$DISTILLD_STEP && )"
                     R"(echo "{\"accuracy\": $(cat $1/accuracy), \"step\": $DISTILLD_STEP}")"));
    EXPECT_EQ(event.problem, "");
    EXPECT_EQ(event.step, 7U);
    EXPECT_THAT(event.figures, ElementsAre(Pair("accuracy", 0.75), Pair("step", 7)));
    EXPECT_GT(event.seconds, 0);
}

TEST_F(EvalProgram, GetsNoKeysAndNoRoleOfARank) {
    constexpr const char* kNames[] = {"DISTILLD_KEY_TEACHER", "MLFLOW_TRACKING_TOKEN", "RANK", "WORLD_SIZE",
                                      "MASTER_ADDR"};
    for (const char* name : kNames) {
        ::setenv(name, "secret", 1);
    }
    const ScopeExit clean([&] { std::ranges::for_each(kNames, ::unsetenv); });
    EXPECT_THAT(problem_of("env | grep -E '^(DISTILLD_KEY|MLFLOW|.*RANK|WORLD|MASTER)' >&2; echo none >&2; exit 1"),
                "it exited with code 1; it said: none");
    EXPECT_THAT(judged(shell("echo \"{\\\"found\\\": $(env | grep -c secret)}\"")).figures,
                ElementsAre(Pair("found", 0)));
}

TEST_F(EvalProgram, ItsFailuresHaveItsLastWords) {
    EXPECT_EQ(problem_of("echo first >&2; echo no such task >&2; exit 3"),
              "it exited with code 3; it said: no such task");
    EXPECT_EQ(problem_of("echo only on stdout; exit 3"), "it exited with code 3; it said: only on stdout");
    EXPECT_THAT(problem_of("kill -9 $$"), ::testing::StartsWith("it exited with code 137"));
    EXPECT_THAT(problem_of("echo '{\"a\": NaN}'; echo a warning >&2"),
                ::testing::AllOf(HasSubstr("is not a JSON object"), EndsWith("; it said: a warning")));
    EXPECT_THAT(problem_of("echo why >&2; exec head -c 2000000 /dev/zero"),
                EndsWith("its answer is longer than 1048576 bytes; it said: why"));
    EXPECT_LE(problem_of("head -c 8000 /dev/zero | tr '\\0' x >&2; exit 1").size(), 1000U);
    EvalSpec eval = shell("exec sleep 1000");
    eval.command_timeout_secs = 0.2;
    EXPECT_THAT(judged(eval).problem, EndsWith("/sh did not end within 200 ms and was killed"));
}

TEST_F(EvalProgram, IsFoundOrNamedByItsField) {
    EvalSpec eval;
    EXPECT_EQ(find_eval_program(eval).value(), "");
    eval.command = {"sh"};
    EXPECT_THAT(find_eval_program(eval).value().string(), EndsWith("/sh"));
    eval.command = {"no-such-program-anywhere"};
    EXPECT_EQ(find_eval_program(eval).error().message,
              "/eval/command/0: no-such-program-anywhere is in no folder of PATH: install it, or give its path");
    eval.command = {folder_.write("plain", "").string()};
    EXPECT_EQ(find_eval_program(eval).error().message,
              "/eval/command/0: " + eval.command.front() + " is not a program that may be executed");
    eval.command = {"no/such"};
    EXPECT_THAT(find_eval_program(eval).error().message,
                HasSubstr("no/such is not a program that may be executed, seen "
                          "from /"));
    EXPECT_THAT(judged(eval).problem, HasSubstr("/eval/command/0: ")) << "one that has gone since the run began";
}

TEST_F(EvalProgram, DiesWithWhatItHasStartedWhenTheWorkerIsKilled) {
    const auto file = folder_ / "pids";
    const std::string script = "trap '' TERM; sleep 1000 & echo $$ $! > " + file.string() + "; wait";
    const pid_t worker = ::fork();
    if (worker == 0) {
        static_cast<void>(judged(shell(script)));
        ::_exit(0);
    }
    while (!test::read_bytes(file).ends_with('\n')) {
        ::usleep(1000);
    }
    ::kill(worker, SIGKILL);
    ASSERT_EQ(::waitpid(worker, nullptr, 0), worker);
    std::istringstream pids(test::read_bytes(file));
    for (int pid = 0; pids >> pid;) {
        while (test::is_running(pid)) {
            ::usleep(1000);
        }
    }
}

TEST_F(EvalProgram, IsKilledWithWhatItHasStartedWhenTheRunIsCancelled) {
    asio::cancellation_signal leave;
    bool aborted = false;
    const auto file = folder_ / "pid";
    asio::co_spawn(
        context_, judge_student(shell("sleep 1000 & echo $! > " + file.string() + "; wait"), 7, folder_.path()),
        asio::bind_cancellation_slot(
            leave.slot(), [&](const std::exception_ptr& thrown, const FiguresEvent&) { aborted = is_abort(thrown); }));
    while (test::read_bytes(file).empty()) {
        context_.run_for(10ms);
    }
    leave.emit(asio::cancellation_type::terminal);
    context_.run();
    EXPECT_TRUE(aborted);
    while (test::is_running(std::stoi(test::read_bytes(file)))) {
        ::usleep(1000);
    }
}

}  // namespace
}  // namespace distilld
