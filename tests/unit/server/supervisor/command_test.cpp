#include "server/supervisor/command.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <csignal>
#include <string>

#include "base/files/descriptor.hpp"
#include "tests/support/process_state.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;
using ::testing::HasSubstr;

Command shell_command(const std::string& script) {
    Command command;
    command.program = "/bin/sh";
    command.arguments = {"-c", script};
    command.environment = {"PATH=/usr/bin:/bin"};
    return command;
}

class RunCommand : public ::testing::Test {
  protected:
    asio::awaitable<void> ask(Command command, std::string& said) {
        const auto answer = co_await run_command(std::move(command));
        said = answer ? std::to_string(answer->exit_code) + "|" + answer->text + "|" + answer->errors
                      : "failed: " + answer.error().message;
    }
    std::string said_by(Command command) {
        std::string said;
        asio::co_spawn(context_, ask(std::move(command), said), asio::detached);
        context_.run();
        context_.restart();
        return said;
    }
    /// Whether the process that has written its id into the file is gone.
    static bool is_gone(const std::filesystem::path& file) {
        return !test::is_running(std::stoi(test::read_bytes(file)));
    }

    test::TemporaryFolder folder_;
    asio::io_context context_{1};
};

TEST_F(RunCommand, GivesWhatTheProgramPrintsAndHowItEnds) {
    EXPECT_EQ(said_by(shell_command("echo out; echo one >&2; echo two >&2; exit 3")), "3|out\n|two");
    EXPECT_EQ(said_by(shell_command("kill -9 $$")), "137||");
    Command reader = shell_command("cat; echo \"[$HOME]\"");
    reader.input = std::string(300'000, 'x');  // more than a pipe holds
    EXPECT_EQ(said_by(reader), "0|" + reader.input + "[]\n|");
    reader = shell_command("head -c 200000 /dev/zero >&2; exit 1");
    reader.input = std::string(300'000, 'x');  // which it does not read
    EXPECT_THAT(said_by(reader), ::testing::StartsWith("1||"));
    Command absent;
    absent.program = folder_ / "absent";
    EXPECT_THAT(said_by(absent), HasSubstr("failed: cannot start " + absent.program.string()));
}

TEST_F(RunCommand, ArgumentsMeetNoShell) {
    Command command;
    command.program = "/bin/echo";
    command.arguments = {"$(id)", "a b", "; exit"};
    EXPECT_EQ(said_by(command), "0|$(id) a b ; exit\n|");
}

TEST_F(RunCommand, AChildHasNoOtherDescriptor) {
    const Descriptor inheritable(::fcntl(STDERR_FILENO, F_DUPFD, 3));
    ASSERT_LT(inheritable.get(), 100);
    EXPECT_EQ(said_by(shell_command("for fd in $(seq 3 99); do [ -e /proc/$$/fd/$fd ] && echo $fd; done; true")),
              "0||");
}

TEST_F(RunCommand, OneThatAnswersTooMuchIsKilled) {
    Command command = shell_command("echo why >&2; echo $$ > " + (folder_ / "pid").string() + "; exec cat /dev/zero");
    command.max_answer = 1000;
    EXPECT_EQ(said_by(command), "failed: /bin/sh: its answer is longer than 1000 bytes; it said: why");
    EXPECT_TRUE(is_gone(folder_ / "pid"));
    command = shell_command("head -c 1000 /dev/zero");
    command.max_answer = 1000;
    EXPECT_EQ(said_by(command), "0|" + std::string(1000, '\0') + "|");
}

TEST_F(RunCommand, OneThatHangsIsKilledAtItsDeadline) {
    Command command = shell_command("echo $$ > " + (folder_ / "pid").string() + "; exec sleep 1000");
    // On a busy machine it takes longer to write.
    for (command.deadline = 200ms; test::read_bytes(folder_ / "pid").empty(); command.deadline *= 2) {
        EXPECT_EQ(said_by(command), "failed: /bin/sh did not end within " + std::to_string(command.deadline.count()) +
                                        " ms and was killed");
    }
    EXPECT_TRUE(is_gone(folder_ / "pid"));
}

TEST_F(RunCommand, OneThatHangsHasItsLastWordsInTheError) {
    Command command = shell_command("echo words >&2; exec sleep 1000");
    command.name = "its name";
    std::string said;
    for (command.deadline = 200ms; said.find("it said") == std::string::npos; command.deadline *= 2) {
        said = said_by(command);
    }
    EXPECT_THAT(said, ::testing::EndsWith(" ms and was killed; it said: words"));
    EXPECT_THAT(said, ::testing::StartsWith("failed: its name did not end within "));
}

TEST_F(RunCommand, OneRunsAtItsPriority) {
    Command command = shell_command("nice");
    const int ours = ::getpriority(PRIO_PROCESS, 0);
    command.nice = 3;
    EXPECT_EQ(said_by(command), "0|" + std::to_string(std::min(19, ours + 3)) + "\n|");
}

TEST_F(RunCommand, OneIsKilledWhenTheCallerIsCancelled) {
    std::string said = "nothing";
    asio::cancellation_signal leave;
    // With what it has started.
    const std::string script = "sleep 1000 & echo $! > " + (folder_ / "pid").string() + "; wait";
    asio::co_spawn(context_, ask(shell_command(script), said),
                   asio::bind_cancellation_slot(leave.slot(), asio::detached));
    while (test::read_bytes(folder_ / "pid").empty()) {
        context_.run_for(10ms);
    }
    leave.emit(asio::cancellation_type::terminal);
    context_.run();
    EXPECT_EQ(said, "nothing");
    while (!is_gone(folder_ / "pid")) {
        ::usleep(1000);
    }
}

TEST_F(RunCommand, ProgramsAreFoundInTheFoldersOfPath) {
    std::filesystem::create_directories(folder_ / "one/tool");
    std::filesystem::create_directories(folder_ / "two");
    std::filesystem::create_directories(folder_ / "three");
    const auto plain = folder_.write("two/tool", "");
    const auto program = folder_.write("three/tool", "");
    const std::string base = folder_.path().string();
    const std::string path = "relative::" + base + "/one:" + base + "/two:" + base + "/three";
    EXPECT_EQ(find_program("tool", path), std::nullopt);
    ::chmod(program.c_str(), 0700);
    EXPECT_EQ(find_program("tool", path), program);
    EXPECT_EQ(find_program("tool", ""), std::nullopt);
}

}  // namespace
}  // namespace distilld
