#include "server/supervisor/slurm/slurm_place.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdlib>
#include <memory>
#include <string>

#include "tests/unit/server/supervisor/slurm/scripted_slurm.hpp"

namespace distilld::slurm {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class SlurmPlace : public ::testing::Test {
  protected:
    /// Begins, waits for the end if it has begun, and cancels.
    asio::awaitable<void> live(Place& place, std::string& said) {
        const auto begun = co_await place.begin();
        said = begun ? "begun" : begun.error().message;
        said += "|" + (co_await place.ended()).words;
        const auto cancelled = co_await place.cancel();
        said += cancelled ? "|cancelled" : "|" + cancelled.error().message;
    }
    std::string life(Place& place) {
        std::string said;
        asio::co_spawn(context_, live(place, said), asio::detached);
        context_.run();
        context_.restart();
        return said;
    }
    static PlaceOptions options() {
        auto spec = std::make_shared<JobSpec>();
        spec->placement.emplace().partition = "debug";
        return {.attempt = {"job-a", 3}, .spec = std::move(spec), .command = {"distilld", "a b"}, .log = "/l"};
    }

    test::ScriptedSlurm slurm_;
    Commands commands_ = slurm_.commands();
    asio::io_context context_{1};
    Queue queue_{commands_, context_.get_executor(), 1ms};
};

TEST_F(SlurmPlace, SubmitsItsScriptAndIsCancelledByItsId) {
    slurm_.plan("sbatch", {"cat >script; echo 'sbatch: a warning' >&2; echo '7;cluster'"});
    slurm_.plan("squeue", {"echo '7|CANCELLED|n1|None|distilld-job-a-3'"});
    slurm_.plan("scancel", {"echo 'scancel: error: Kill job error on job id 7: Invalid job id specified' >&2; exit 1"});
    Place place(commands_, queue_, options());
    EXPECT_EQ(place.id(), std::nullopt);
    EXPECT_EQ(life(place), "begun|Slurm job 7 was cancelled|cancelled");
    EXPECT_EQ(place.id(), 7);
    EXPECT_EQ(slurm_.file("script"), "#!/bin/sh\nexec distilld 'a b'\n");
    EXPECT_THAT(slurm_.calls().front(), HasSubstr(" --job-name=distilld-job-a-3 --output=/l "));
    EXPECT_THAT(slurm_.calls().front(), HasSubstr(" --partition=debug"));
    EXPECT_EQ(slurm_.calls().back(), "scancel 7");
}

TEST_F(SlurmPlace, WhatWasNotSubmittedIsCancelledByItsName) {
    slurm_.plan("sbatch", {"echo 'sbatch: error: invalid partition specified: debug' >&2;"
                           "echo 'sbatch: error: Batch job submission failed: Invalid partition name specified' >&2;"
                           "exit 1"});
    Place place(commands_, queue_, options());
    EXPECT_EQ(life(place),
              "sbatch: error: Batch job submission failed: Invalid partition name specified|the job was not submitted "
              "to Slurm|cancelled");
    EXPECT_EQ(slurm_.calls().back(), "scancel --me --name=distilld-job-a-3");
    slurm_.plan("scancel", {"exit 3"});
    EXPECT_THAT(life(place), ::testing::EndsWith("|scancel ended with code 3"));
}

TEST_F(SlurmPlace, AnAnswerWithoutAnIdIsAFailure) {
    slurm_.plan("sbatch", {"echo '\x1b[1mjob'"});
    Place place(commands_, queue_, options());
    EXPECT_THAT(life(place), StartsWith("sbatch printed no job id, but \"\\u001b[1mjob\"|"));
}

TEST_F(SlurmPlace, AnAdoptedJobIsNotSubmittedAgain) {
    slurm_.plan("squeue", {"echo '9|TIMEOUT|n1|None|a'"});
    Place place(commands_, queue_, options());
    place.adopt(9);
    std::string words;
    const auto wait = [](Place& adopted, std::string& said) -> asio::awaitable<void> {
        said = (co_await adopted.ended()).words;
        static_cast<void>(co_await adopted.cancel());
    };
    asio::co_spawn(context_, wait(place, words), asio::detached);
    context_.run();
    EXPECT_EQ(words, "Slurm job 9 reached its time limit");
    EXPECT_EQ(slurm_.calls_of("sbatch"), 0);
    EXPECT_EQ(slurm_.calls().back(), "scancel 9");
}

TEST(SlurmCommands, AMissingCommandIsNamed) {
    const test::ScriptedSlurm slurm;
    std::filesystem::remove(slurm.folder() / "squeue");
    EXPECT_EQ(Commands::find(slurm.options()).error().message,
              "squeue is not in a folder of PATH: install Slurm's commands (Debian: slurm-client)");
}

TEST(SlurmCommands, TheirEnvironmentHasNoKeys) {
    ::setenv("SLURM_CONF", "/etc/slurm.conf", 1);
    ::setenv("SBATCH_PARTITION", "other", 1);
    ::setenv("DISTILLD_KEY_A", "secret", 1);
    const CommandsOptions options = usual_commands();
    for (const char* name : {"SLURM_CONF", "SBATCH_PARTITION", "DISTILLD_KEY_A"}) {
        ::unsetenv(name);
    }
    EXPECT_THAT(options.environment, Contains("SLURM_CONF=/etc/slurm.conf"));
    EXPECT_THAT(options.environment, Contains(StartsWith("PATH=")));
    EXPECT_THAT(options.environment, Not(Contains(StartsWith("SBATCH_"))));
    EXPECT_THAT(options.environment, Not(Contains(HasSubstr("secret"))));
    EXPECT_EQ(options.path, std::getenv("PATH"));
}

}  // namespace
}  // namespace distilld::slurm
