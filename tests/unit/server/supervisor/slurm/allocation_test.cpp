#include "server/supervisor/slurm/allocation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>

#include "tests/support/temporary_folder.hpp"

namespace distilld::slurm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class AllocationTest : public ::testing::Test {
  protected:
    AllocationTest() {
        std::ofstream(srun_) << "";
        std::filesystem::permissions(srun_, std::filesystem::perms::owner_all);
    }
    Result<Allocation> read() const {
        return read_allocation([this](const char* name) {
            const auto found = variables_.find(name);
            return found == variables_.end() ? std::nullopt : std::optional(found->second);
        });
    }

    test::TemporaryFolder folder_;
    std::filesystem::path srun_ = folder_.path() / "srun";
    std::map<std::string, std::string> variables_{{"SLURM_JOB_ID", "12"},
                                                  {"SLURM_JOB_NODELIST", "no-such-host-[07-08]"},
                                                  {"SLURM_CONF", "/etc/lab.conf"},
                                                  {"PATH", folder_.path().string()}};
};

TEST_F(AllocationTest, SlurmSaysWhichNodesTheJobHas) {
    auto found = read().value();
    EXPECT_EQ(found.job, 12U);
    EXPECT_THAT(found.nodes, ElementsAre("no-such-host-07", "no-such-host-08"));
    EXPECT_EQ(found.srun, srun_);
    EXPECT_EQ(found.config, "/etc/lab.conf");
    EXPECT_EQ(found.host, "no-such-host-07") << "the others' name is not known here, nor is an address towards them";
    variables_["MASTER_ADDR"] = "10.0.0.7";
    EXPECT_EQ(read()->host, "10.0.0.7");
}

TEST_F(AllocationTest, TheFirstNodeIsWhereTheOthersSeeIt) {
    variables_["SLURM_JOB_NODELIST"] = "n1,127.0.0.2";  // a name that has an address
    EXPECT_EQ(read()->host, "127.0.0.1");
}

TEST_F(AllocationTest, OnlyABatchScriptHasNodes) {
    variables_["SLURM_JOB_NODELIST"] = "n[1-";
    EXPECT_THAT(read().error().message, HasSubstr("SLURM_JOB_NODELIST in the environment"));
    variables_.erase("SLURM_JOB_ID");
    EXPECT_THAT(read().error().message, HasSubstr("SLURM_JOB_ID in the environment"));
}

TEST_F(AllocationTest, SrunMustBeThere) {
    std::filesystem::remove(srun_);
    EXPECT_EQ(read().error().message,
              "srun is not in a folder of PATH on node no-such-host-07: install Slurm's commands (Debian: "
              "slurm-client)");
}

TEST_F(AllocationTest, AStepOfSrunIsTheWorkerOfAnotherNode) {
    WorkerProcessOptions worker;
    worker.program = "/opt/distilld-worker";
    worker.environment = {"GOMP_SPINCOUNT=1000"};
    const auto there = on_node(read().value(), "n8", worker);
    EXPECT_EQ(there.program, srun_);
    EXPECT_EQ(there.channel, ChannelAt::stdio);
    EXPECT_THAT(there.arguments,
                ElementsAre("--jobid=12", "--nodes=1", "--ntasks=1", "--nodelist=n8", "--overlap", "--quiet",
                            "--export=ALL", "--mpi=none", "/opt/distilld-worker", "train", "--stdio"));
    EXPECT_THAT(there.environment, ElementsAre("GOMP_SPINCOUNT=1000", "SLURM_CONF=/etc/lab.conf"));
}

}  // namespace
}  // namespace distilld::slurm
