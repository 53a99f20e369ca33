#include "server/supervisor/slurm/slurm_queue.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/server/supervisor/slurm/scripted_slurm.hpp"

namespace distilld::slurm {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string record_of(const std::string& state) {
    return "echo 'JobId=7 JobName=a JobState=" + state + " ExitCode=3:0'";
}

class SlurmQueue : public ::testing::Test {
  protected:
    asio::awaitable<void> wait(Queue& queue, std::uint64_t id, std::string& words) {
        words = (co_await queue.ended(id, "")).words;
    }
    asio::awaitable<void> list(Queue& queue, std::vector<std::string> running, std::string& text) {
        const auto nodes = co_await queue.nodes(std::move(running));
        if (!nodes) {
            text = nodes.error().message;
            co_return;
        }
        for (const Node& node : *nodes) {
            text += node.name + ":";
            for (const std::string& job : node.jobs) {
                text += " " + job;
            }
            text += "\n";
        }
    }
    std::string end_of_seven() {
        const Commands commands = slurm_.commands();
        Queue queue(commands, context_.get_executor(), 1ms);
        std::string words;
        asio::co_spawn(context_, wait(queue, 7, words), asio::detached);
        context_.run();
        return words;
    }

    test::ScriptedSlurm slurm_;
    asio::io_context context_{1};
};

TEST_F(SlurmQueue, AJobEndsWhenSlurmSaysSo) {
    slurm_.plan("squeue", {"echo '7|PENDING||None|a'", "echo '7|RUNNING|n1|None|a'", "echo '7|COMPLETING|n1|None|a'",
                           "echo '7|FAILED|n1|None|a'"});
    slurm_.plan("scontrol", {record_of("FAILED")});
    EXPECT_EQ(end_of_seven(), "Slurm job 7 failed with exit code 3");
    EXPECT_THAT(slurm_.calls().front(), "squeue --noheader --me --states=all --format=%A|%T|%N|%r|%j");
    EXPECT_EQ(slurm_.calls_of("squeue"), 4);
    EXPECT_EQ(slurm_.calls().back(), "scontrol --oneliner show job 7");
    EXPECT_EQ(slurm_.calls_of("scontrol"), 1);
}

TEST_F(SlurmQueue, SaysWhyAJobWaits) {
    slurm_.plan("squeue", {"echo '7|PENDING||None|a'", "echo '7|PENDING||Resources|a'", "echo '7|PENDING||Resources|a'",
                           test::kControllerDown, "true", "echo '7|PENDING||Priority|a'", "echo '7|RUNNING|n1|None|a'",
                           "echo '7|FAILED|n1|None|a'"});
    slurm_.plan("scontrol", {record_of("FAILED")});
    const Commands commands = slurm_.commands();
    Queue queue(commands, context_.get_executor(), 1ms);
    std::vector<std::string> waits;
    const auto wait_for_end = [](Queue& in, std::vector<std::string>& said) -> asio::awaitable<void> {
        PlaceWait waiting = [&said](const std::string& why) { said.push_back(why); };
        co_await in.ended(7, "", std::move(waiting));
    };
    asio::co_spawn(context_, wait_for_end(queue, waits), asio::detached);
    context_.run();
    EXPECT_THAT(waits, ElementsAre("in Slurm's queue as job 7: Resources", "in Slurm's queue as job 7: Priority", ""));
}

TEST_F(SlurmQueue, AControllerThatDoesNotAnswerEndsNoJob) {
    slurm_.plan("squeue", {test::kControllerDown, test::kControllerDown, test::kControllerDown,
                           "echo '7|RUNNING|n1|None|a'", test::kControllerDown, "echo '7|TIMEOUT|n1|None|a'"});
    slurm_.plan("scontrol", {test::kControllerDown});  // then squeue's word counts
    EXPECT_EQ(end_of_seven(), "Slurm job 7 reached its time limit");
    EXPECT_EQ(slurm_.calls_of("squeue"), 6);
    EXPECT_EQ(slurm_.calls_of("scontrol"), 1);
}

TEST_F(SlurmQueue, AJobThatIsMissingTwiceIsGoneIfScontrolDoesNotKnowItEither) {
    slurm_.plan("squeue", {"echo '8|RUNNING|n1|None|a'", "echo '7|RUNNING|n1|None|a'", "true"});
    slurm_.plan("scontrol", {record_of("RUNNING"), test::kControllerDown, test::kUnknownJob});
    EXPECT_EQ(end_of_seven(), "Slurm job 7 has ended, and Slurm does not know it any more");
    // Missing in 1, 3 and 4 (runs), 5 and 6 (no answer), 7.
    EXPECT_EQ(slurm_.calls_of("squeue"), 7);
    EXPECT_EQ(slurm_.calls_of("scontrol"), 3);
}

TEST_F(SlurmQueue, AMissingJobMayHaveARecord) {
    slurm_.plan("squeue", {"true"});
    slurm_.plan("scontrol", {record_of("NODE_FAIL")});
    EXPECT_EQ(end_of_seven(), "Slurm job 7 lost its node with exit code 3");
}

TEST_F(SlurmQueue, OneListIsForAllJobs) {
    slurm_.plan("squeue", {"echo '7|RUNNING|n1|None|a'; echo '8|RUNNING|n1|None|a'; echo '9|RUNNING|n1|None|a'",
                           "echo '7|TIMEOUT|n1|None|a'; echo '8|TIMEOUT|n1|None|a'; echo '9|TIMEOUT|n1|None|a'"});
    const Commands commands = slurm_.commands();
    Queue queue(commands, context_.get_executor(), 1ms);
    std::array<std::string, 3> words;
    for (std::uint64_t i = 0; i < words.size(); ++i) {
        asio::co_spawn(context_, wait(queue, 7 + i, words[i]), asio::detached);
    }
    context_.run();
    EXPECT_THAT(words, ElementsAre("Slurm job 7 reached its time limit", "Slurm job 8 reached its time limit",
                                   "Slurm job 9 reached its time limit"));
    EXPECT_EQ(slurm_.calls_of("squeue"), 2);
}

TEST_F(SlurmQueue, AnotherOneAsksWhenTheFirstHasLeft) {
    slurm_.plan("squeue", {"touch asked; while :; do :; done", "echo '8|TIMEOUT|n1|None|a'"});
    const Commands commands = slurm_.commands();
    Queue queue(commands, context_.get_executor(), 1ms);
    std::string left = "nothing";
    std::string words;
    asio::cancellation_signal leave;
    asio::co_spawn(context_, wait(queue, 7, left), asio::bind_cancellation_slot(leave.slot(), asio::detached));
    asio::co_spawn(context_, wait(queue, 8, words), asio::detached);
    while (!std::filesystem::exists(slurm_.folder() / "asked")) {
        context_.run_for(5ms);
    }
    leave.emit(asio::cancellation_type::terminal);
    context_.run();
    EXPECT_EQ(left, "nothing");
    EXPECT_EQ(words, "Slurm job 8 reached its time limit");
}

TEST_F(SlurmQueue, MachinesHaveTheJobsOfTheServiceThatRunThere) {
    slurm_.plan("sinfo", {"echo 'n1|mixed|2|1|(null)'; echo 'n2|idle|2|1|(null)'"});
    slurm_.plan("squeue", {"echo '1|RUNNING|n[1-2]|None|distilld-job-a-1'; echo '2|PENDING||None|distilld-job-b-1';"
                           "echo '3|COMPLETED|n1|None|distilld-job-c-1'; echo '4|RUNNING|n1|None|other';"
                           "echo '5|RUNNING|n1,n9|None|distilld-job-d-12'; echo '6|RUNNING|n1|None|distilld-job-e-1'"});
    const Commands commands = slurm_.commands();
    Queue queue(commands, context_.get_executor(), 1h);
    std::array<std::string, 2> texts;
    for (std::string& text : texts) {
        asio::co_spawn(context_, list(queue, {"job-a", "job-b", "job-c", "job-d"}, text), asio::detached);
        context_.run();
        context_.restart();
        EXPECT_EQ(text, "n1: job-a job-d\nn2: job-a\n");
    }
    EXPECT_EQ(slurm_.calls_of("sinfo"), 1) << "within the interval";
    EXPECT_EQ(slurm_.calls_of("squeue"), 1);
}

TEST_F(SlurmQueue, MachinesAreUnknownWhileSlurmDoesNotAnswer) {
    slurm_.plan("sinfo", {"echo 'slurm_load_partitions: Unable to contact slurm controller' >&2; exit 1"});
    const Commands commands = slurm_.commands();
    Queue queue(commands, context_.get_executor(), 1ms);
    std::string text;
    asio::co_spawn(context_, list(queue, {}, text), asio::detached);
    context_.run();
    EXPECT_EQ(text, "sinfo: slurm_load_partitions: Unable to contact slurm controller");
}

TEST(SlurmJobName, NamesTheJobAndItsAttempt) {
    EXPECT_EQ(job_name({"job-ab-c", 12}), "distilld-job-ab-c-12");
    EXPECT_EQ(job_of("distilld-job-ab-c-12"), "job-ab-c");
    for (const char* name : {"", "distilld", "distilld-", "distilld-1", "other-job-1"}) {
        EXPECT_EQ(job_of(name), std::nullopt) << name;
    }
}

}  // namespace
}  // namespace distilld::slurm
