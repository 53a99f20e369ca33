#include "server/supervisor/slurm/batch_script.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace distilld::slurm {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsSupersetOf;

TEST(BatchScript, AJobWithoutPlacementTakesOneNodeAndOneCorePerThread) {
    JobSpec spec;
    spec.training.threads = 6;
    EXPECT_THAT(batch_options(spec, "distilld-j-1", "/logs/distilld-j-1.log"),
                ElementsAre("--parsable", "--no-requeue", "--export=ALL", "--job-name=distilld-j-1",
                            "--output=/logs/distilld-j-1.log", "--nodes=1", "--ntasks-per-node=1", "--cpus-per-task=6",
                            "--signal=B:TERM@60"));
    EXPECT_EQ(batch_script({"distilld", "attempt", "--service", "http://a:1"}),
              "#!/bin/sh\nexec distilld attempt --service http://a:1\n");
    spec.training.threads = 0;
    EXPECT_THAT(batch_options(spec, "n", "l"), Contains("--cpus-per-task=1"));
    spec.training.threads = 2;
    spec.training.ranks = 3;
    EXPECT_THAT(batch_options(spec, "n", "l"), Contains("--cpus-per-task=6"));
}

TEST(BatchScript, RanksOfANodeShareItsCores) {
    JobSpec spec;
    spec.training.threads = 2;
    spec.placement.emplace().nodes = 3;
    spec.placement->ranks_per_node = 2;
    spec.training.ranks = 6;  // the same
    EXPECT_THAT(batch_options(spec, "n", "l"),
                IsSupersetOf({"--nodes=3", "--ntasks-per-node=1", "--cpus-per-task=4", "--signal=B:TERM@60"}));
    spec.placement->cores = 5;
    EXPECT_THAT(batch_options(spec, "n", "l"), Contains("--cpus-per-task=10"));
}

TEST(BatchScript, EachFieldOfThePlacementIsAnOption) {
    JobSpec spec;
    spec.placement.emplace();
    spec.placement->cores = 8;
    spec.placement->memory = (8ULL << 30) + 1;
    spec.placement->gpus = 2;
    spec.placement->partition = "a b";
    spec.placement->time_limit = std::chrono::seconds(61);
    EXPECT_THAT(batch_options(spec, "n", "l"),
                IsSupersetOf({"--cpus-per-task=8", "--mem=8193M", "--gpus-per-node=2", "--partition=a b", "--time=2"}));
}

TEST(BatchScript, OptionsOfTheSpecStandBeforeOurs) {
    JobSpec spec;
    spec.placement.emplace();
    spec.placement->options = {{"account", "lab; rm -rf /"}, {"exclusive", ""}};
    const auto options = batch_options(spec, "n", "l");
    ASSERT_GE(options.size(), 3U);
    EXPECT_EQ(options[0], "--account=lab; rm -rf /");
    EXPECT_EQ(options[1], "--exclusive");
    EXPECT_EQ(options[2], "--parsable");
}

TEST(BatchScript, EveryWordIsQuotedForTheShell) {
    EXPECT_EQ(batch_script({"/a b/distilld", "$(id)", "it's", "x\n#SBATCH --uid=0", ""}),
              "#!/bin/sh\nexec '/a b/distilld' '$(id)' 'it'\\''s' 'x\n#SBATCH --uid=0' ''\n");
}

}  // namespace
}  // namespace distilld::slurm
