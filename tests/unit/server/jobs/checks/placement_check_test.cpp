#include "server/jobs/checks/placement_check.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace distilld {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> pointers_of(const PlacementSpec& placement, const LauncherSettings& launcher) {
    JobSpec spec;
    spec.placement = placement;
    std::vector<std::string> pointers;
    for (const auto& violation : check_placement(spec, launcher).violations) {
        EXPECT_EQ(violation.code, "conflict");
        pointers.push_back(violation.pointer);
    }
    return pointers;
}

TEST(PlacementCheck, ThisMachineIsOneNode) {
    const LauncherSettings local;
    EXPECT_THAT(check_placement(JobSpec(), local).violations, IsEmpty());
    PlacementSpec placement;
    placement.cores = 8;
    placement.memory = 1;
    placement.gpus = 1;
    placement.time_limit = std::chrono::hours(1);
    EXPECT_THAT(pointers_of(placement, local), IsEmpty());
    placement.nodes = 2;
    placement.ranks_per_node = 2;
    placement.partition = "main";
    placement.options = {{"account", "lab"}};
    EXPECT_THAT(pointers_of(placement, local), ElementsAre("/placement/nodes", "/placement/ranks_per_node",
                                                           "/placement/partition", "/placement/options"));
}

TEST(PlacementCheck, AClusterTakesTheOptionsThatAreAllowed) {
    LauncherSettings slurm;
    slurm.kind = LauncherKind::slurm;
    slurm.allowed_options = {"account", "qos"};
    PlacementSpec placement;
    placement.partition = "main";
    placement.options = {{"account", "lab"}, {"qos", ""}};
    placement.nodes = placement.ranks_per_node = 2;
    EXPECT_THAT(pointers_of(placement, slurm), IsEmpty());
    placement.options.emplace("reservation", "mine");
    EXPECT_THAT(pointers_of(placement, slurm), ElementsAre("/placement/options/reservation"));
}

}  // namespace
}  // namespace distilld
