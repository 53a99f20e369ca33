#include "server/jobs/checks/estimate_process.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/cancellation_type.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "base/json_fields.hpp"
#include "base/json_text.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;
using ::testing::HasSubstr;

/// A program that is no estimate: what /bin/sh is told.
EstimateProcessOptions shell(const std::string& script) {
    EstimateProcessOptions options;
    options.program = "/bin/sh";
    options.arguments = {"-c", script};
    return options;
}

std::string outcome(const Result<boost::json::object>& made) {
    return made ? to_text(*made) : "failed: " + made.error().message;
}

class EstimateProcess : public ::testing::Test {
  protected:
    asio::awaitable<void> ask(const EstimateRunner& runner, std::string& said) {
        EstimateRequest request;
        request.spec_json = "{}";
        said = outcome(co_await runner(std::move(request)));
    }
    std::string made_by(const EstimateProcessOptions& options) {
        const EstimateRunner runner = make_estimate_processes(options);
        std::string said;
        asio::co_spawn(context_, ask(runner, said), asio::detached);
        context_.run();
        context_.restart();
        return said;
    }
    /// The process id that a script has written with `echo $$ > FILE`, once it has ended; 0: it is still there.
    static pid_t ended(const std::filesystem::path& file) {
        const std::string text = test::read_bytes(file);
        const auto pid = static_cast<pid_t>(text.empty() ? 0 : std::stol(text));
        for (int tries = 0; tries < 5000 && pid > 0; ++tries) {
            if (::kill(pid, 0) != 0) {
                return pid;
            }
            ::usleep(2000);
        }
        return 0;
    }

    test::TemporaryFolder folder_;
    asio::io_context context_{1};
};

TEST_F(EstimateProcess, GivesWhatItsProcessSays) {
    EXPECT_EQ(made_by(shell(R"(echo '{"estimate":{"steps":3}}' >&3)")), R"({"steps":3})");
    EXPECT_EQ(made_by(shell(R"(read line <&3; echo "{\"failure\":\"it is too hard\"}" >&3)")),
              "failed: it is too hard");
    EXPECT_THAT(made_by(shell("exit 3")), HasSubstr("its process ended early"));
    EXPECT_THAT(made_by(shell("kill -SEGV $$")), HasSubstr("its process ended early"));
    EXPECT_THAT(made_by(shell("echo rubbish >&3")), HasSubstr("answered something else"));
    EXPECT_THAT(made_by({.program = folder_ / "absent"}), HasSubstr("cannot start"));
}

TEST_F(EstimateProcess, F11OneThatHangsIsKilledAtItsDeadline) {
    const auto file = folder_ / "pid";
    EstimateProcessOptions options = shell("echo $$ > " + file.string() + "; echo ready > " +
                                           (folder_ / "ready").string() + "; while :; do :; done");
    // On a busy machine its process takes longer to write.
    for (options.deadline = 500ms; test::read_bytes(file).empty(); options.deadline *= 2) {
        EXPECT_THAT(made_by(options),
                    HasSubstr("it was not made within " + std::to_string(options.deadline.count()) + " ms"));
    }
    EXPECT_GT(ended(file), 0);
}

TEST_F(EstimateProcess, F11OneIsKilledWhenWhoeverAskedForItHasLeft) {
    const auto file = folder_ / "pid";
    const EstimateRunner runner =
        make_estimate_processes(shell("echo $$ > " + file.string() + "; while :; do :; done"));
    std::string said = "nothing";
    asio::cancellation_signal leave;
    asio::co_spawn(context_, ask(runner, said), asio::bind_cancellation_slot(leave.slot(), asio::detached));
    while (test::read_bytes(file).empty()) {
        context_.run_for(10ms);
    }
    leave.emit(asio::cancellation_type::terminal);
    context_.run();
    EXPECT_EQ(said, "nothing");
    EXPECT_GT(ended(file), 0);
}

TEST_F(EstimateProcess, F11NoneHoldsTheServiceWhenThatEnds) {
    const auto file = folder_ / "pid";
    {
        // The estimate in progress owns the runner's thread, which may still use the context after it has started the
        // process. Declared first, the context is destroyed last: that ends the estimate, which joins the thread.
        asio::io_context context(1);
        const EstimateRunner runner =
            make_estimate_processes(shell("read line <&3; echo $$ > " + file.string() + "; while :; do :; done"));
        std::string said;
        asio::co_spawn(context, ask(runner, said), asio::detached);
        while (test::read_bytes(file).empty()) {
            context.run_for(10ms);
        }
    }
    EXPECT_GT(ended(file), 0);
}

TEST_F(EstimateProcess, F11SomeAreMadeAtOnceAndTheOthersWaitForTheirTurn) {
    EstimateProcessOptions options = shell("echo x >> " + (folder_ / "started").string() + "; while :; do :; done");
    options.at_once = 1;
    options.deadline = 1500ms;
    options.turn_deadline = 100ms;
    const EstimateRunner runner = make_estimate_processes(options);
    std::array<std::string, 2> said;
    for (std::string& one : said) {
        asio::co_spawn(context_, ask(runner, one), asio::detached);
    }
    context_.run();
    EXPECT_THAT(said[0], HasSubstr("it was not made within"));
    EXPECT_THAT(said[1], HasSubstr("other estimates are in progress and take long"));
    EXPECT_EQ(test::read_bytes(folder_ / "started"), "x\n");
}

/// Both ends of what the process does, in a child of this test.
std::string answered(const std::string& request) {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) != 0) {
        return "no sockets";
    }
    const pid_t child = ::fork();
    if (child == 0) {
        ::close(ends[0]);
        ::_exit(answer_estimate(ends[1]));
    }
    ::close(ends[1]);
    const std::string line = request + "\n";
    std::string said = ::write(ends[0], line.data(), line.size()) > 0 ? "" : "not written";
    std::array<char, 4096> bytes{};
    for (ssize_t count = 0; (count = ::read(ends[0], bytes.data(), bytes.size())) > 0;) {
        said.append(bytes.data(), static_cast<std::size_t>(count));
    }
    ::close(ends[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    return said.empty() ? "exit status " + std::to_string(WEXITSTATUS(status)) : said;
}

TEST_F(EstimateProcess, F3ItsProcessOpensOnlyWhatItMay) {
    const auto base = std::filesystem::canonical(folder_.path());
    std::filesystem::create_directories(base / "root/model");
    folder_.write("config.json", "{\"model_type\": 7}");
    std::filesystem::create_symlink(base / "config.json", base / "root/model/config.json");
    EstimateRequest request;
    request.spec_json = R"({"student":{"model":")" + (base / "root/model").string() +
                        R"("},"dataset":{"train":"/data/t.jsonl","sequence_length":16},"training":{"max_steps":3},)"
                        R"("output":"/out"})";
    EXPECT_THAT(answered(to_text(write_fields(request))), HasSubstr("model_type"));
    request.files = FileRule{.roots = {base / "root"}};
    EXPECT_THAT(answered(to_text(write_fields(request))),
                HasSubstr("root/model/config.json' is not below a folder that specs may name"));
    EXPECT_EQ(answered("no request"), "exit status 1");
}

}  // namespace
}  // namespace distilld
