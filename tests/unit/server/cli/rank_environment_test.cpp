#include "server/cli/rank_environment.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

namespace distilld::cli {
namespace {

using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

Result<std::optional<RankPlace>> place_in(const Variables& variables) {
    return rank_from_environment([&variables](const char* name) {
        const auto found = variables.find(name);
        return found == variables.end() ? std::nullopt : std::optional(found->second);
    });
}

Variables with(Variables variables, const std::string& name, const std::string& value) {
    variables[name] = value;
    return variables;
}

Variables without(Variables variables, const std::string& name) {
    variables.erase(name);
    return variables;
}

const Variables kTorchrun{{"RANK", "3"},
                          {"WORLD_SIZE", "4"},
                          {"LOCAL_WORLD_SIZE", "2"},
                          {"LOCAL_RANK", "1"},
                          {"MASTER_ADDR", "head"},
                          {"MASTER_PORT", "29500"},
                          {"TORCHELASTIC_RESTART_COUNT", "1"},
                          {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
const Variables kTrainJob{{"PET_NODE_RANK", "1"},
                          {"PET_NNODES", "2"},
                          {"PET_NPROC_PER_NODE", "1"},
                          {"PET_MASTER_ADDR", "head"},
                          {"PET_MASTER_PORT", "29400"}};
const Variables kSlurm{{"SLURM_JOB_ID", "12345"}, {"SLURM_STEP_ID", "2"},      {"SLURM_PROCID", "1"},
                       {"SLURM_NTASKS", "4"},     {"SLURM_NNODES", "2"},       {"SLURM_STEP_NODELIST", "n[07-08]"},
                       {"SLURM_LOCALID", "1"},    {"SLURM_JOB_NODELIST", "n1"}};

TEST(RankFromEnvironment, IsNoneWithoutALauncher) {
    EXPECT_FALSE(place_in({}).value());
    EXPECT_FALSE(place_in({{"MASTER_ADDR", "head"}, {"MASTER_PORT", "1"}}).value());
    EXPECT_FALSE(place_in(without(kSlurm, "SLURM_STEP_ID")).value()) << "a batch script";
    EXPECT_FALSE(place_in({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).value());
    EXPECT_FALSE(place_in(with(with(kSlurm, "SLURM_NTASKS", "1"), "SLURM_PROCID", "0")).value());
}

TEST(RankFromEnvironment, ReadsTorchrun) {
    const RankPlace place = place_in(kTorchrun).value().value();
    EXPECT_EQ(place.rank, 3U);
    EXPECT_EQ(place.count, 4U);
    EXPECT_EQ(place.host, "head");
    EXPECT_EQ(place.port, 29500);
    EXPECT_EQ(place.local_count, 2U);
    EXPECT_EQ(place.local_rank, 1U);
    EXPECT_EQ(place.attempt, 1U);
    EXPECT_TRUE(place.hosted);
    EXPECT_FALSE(place_in(without(kTorchrun, "TORCHELASTIC_USE_AGENT_STORE")).value()->hosted) << "a PyTorchJob";
}

TEST(RankFromEnvironment, ReadsATrainJob) {
    const RankPlace place = place_in(kTrainJob).value().value();
    EXPECT_EQ(place.rank, 1U);
    EXPECT_EQ(place.count, 2U);
    EXPECT_EQ(place.host, "head");
    EXPECT_EQ(place.port, 29400);
    EXPECT_FALSE(place.hosted);
    EXPECT_THAT(place_in(with(kTrainJob, "PET_NPROC_PER_NODE", "2")).error().message, HasSubstr("torchrun"));
}

TEST(RankFromEnvironment, ReadsSlurm) {
    const RankPlace place = place_in(kSlurm).value().value();
    EXPECT_EQ(place.rank, 1U);
    EXPECT_EQ(place.count, 4U);
    EXPECT_EQ(place.host, "n07");
    EXPECT_EQ(place.port, 20000 + (12345 + 2) % 10000);
    EXPECT_EQ(place.local_count, 2U);
    EXPECT_EQ(place.local_rank, 1U);
    const Variables named = with(with(kSlurm, "MASTER_ADDR", "other"), "MASTER_PORT", "7");
    EXPECT_EQ(place_in(named).value()->host, "other");
    EXPECT_EQ(place_in(named).value()->port, 7);
}

TEST(RankFromEnvironment, FindsTheFirstHostOfSlurmsLists) {
    for (const auto& [list, host] :
         {std::pair("n1", "n1"), std::pair("n1,n2", "n1"), std::pair("a-b[3,5-6],c", "a-b3"),
          std::pair("n[007-009].lab,x", "n007.lab"), std::pair("n[1-2]-eth[0-1]", "n1-eth")}) {
        EXPECT_THAT(place_in(with(kSlurm, "SLURM_STEP_NODELIST", list)).value()->host, testing::StartsWith(host));
    }
    EXPECT_EQ(place_in(without(kSlurm, "SLURM_STEP_NODELIST")).value()->host, "n1");
}

TEST(RankFromEnvironment, NamesTheVariableThatIsWrong) {
    struct Case {
        Variables variables;
        const char* name;
    };
    const Case kCases[] = {
        {without(kTorchrun, "WORLD_SIZE"), "WORLD_SIZE"},
        {without(kTorchrun, "MASTER_ADDR"), "MASTER_ADDR"},
        {with(kTorchrun, "RANK", "4"), "RANK"},
        {with(kTorchrun, "RANK", "-1"), "RANK"},
        {with(kTorchrun, "RANK", ""), "RANK"},
        {with(kTorchrun, "RANK", "0x1"), "RANK"},
        {with(kTorchrun, "WORLD_SIZE", "1025"), "WORLD_SIZE"},
        {with(kTorchrun, "WORLD_SIZE", "99999999999"), "WORLD_SIZE"},
        {with(kTorchrun, "MASTER_PORT", "0"), "MASTER_PORT"},
        {with(kTorchrun, "MASTER_PORT", "65536"), "MASTER_PORT"},
        {with(kTorchrun, "LOCAL_WORLD_SIZE", "two"), "LOCAL_WORLD_SIZE"},
        {with(kTrainJob, "PET_NNODES", "1:4"), "PET_NNODES"},
        {without(kTrainJob, "PET_MASTER_PORT"), "PET_MASTER_PORT"},
        {without(kSlurm, "SLURM_NTASKS"), "SLURM_NTASKS"},
        {with(kSlurm, "SLURM_STEP_ID", "batch"), "SLURM_STEP_ID"},
        {without(without(kSlurm, "SLURM_STEP_NODELIST"), "SLURM_JOB_NODELIST"), "SLURM_JOB_NODELIST"},
    };
    for (const Case& one : kCases) {
        const auto place = place_in(one.variables);
        ASSERT_FALSE(place) << one.name;
        EXPECT_EQ(place.error().kind, ErrorKind::invalid_input);
        EXPECT_THAT(place.error().message, testing::StartsWith(std::string(one.name) + " in the environment: "));
    }
}

}  // namespace
}  // namespace distilld::cli
