#include "server/jobs/table/slot_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>

#include "server/jobs/table/slot_plan.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(SlotTable, GivesTheFirstFreeSlotAndTakesItBack) {
    SlotTable table(shared_slots(2));
    EXPECT_EQ(table.free(), 2U);
    EXPECT_EQ(table.take("a")->number, 0U);
    EXPECT_EQ(table.take("b")->number, 1U);
    EXPECT_EQ(table.busy(), 2U);
    EXPECT_EQ(table.take("c"), nullptr);
    EXPECT_EQ(table.of("c"), nullptr);
    table.release("a");
    EXPECT_EQ(table.of("a"), nullptr);
    EXPECT_EQ(table.free(), 1U);
    EXPECT_EQ(table.take("c")->number, 0U);
    EXPECT_EQ(table.of("b")->number, 1U);
}

TEST(SlotTable, OneJobHasOneSlotHoweverOftenItAsks) {
    SlotTable table(shared_slots(2));
    EXPECT_EQ(table.take("a"), table.take("a"));
    EXPECT_EQ(table.busy(), 1U);
    table.release("a");
    table.release("a");
    table.release("nobody");
    EXPECT_EQ(table.busy(), 0U);
    EXPECT_EQ(table.free(), 2U);
}

std::vector<std::vector<std::uint32_t>> cores_of(const Result<std::vector<Slot>>& plan) {
    std::vector<std::vector<std::uint32_t>> cores;
    for (const auto& slot : plan.value()) {
        EXPECT_EQ(slot.number, cores.size());
        cores.push_back(slot.cores);
    }
    return cores;
}

TEST(SlotPlan, OneSlotHasAllCores) {
    EXPECT_THAT(cores_of(plan_slots(SlotsBy::cores, std::nullopt, {{0, 4, 1, 5}, {}})),
                ElementsAre(ElementsAre(0, 1, 4, 5)));
}

TEST(SlotPlan, SlotsHaveAsManyCoresEachAndNoneInCommon) {
    const SlotMachine machine{{0, 4, 1, 5, 2, 6, 3, 7}, {}};
    EXPECT_THAT(cores_of(plan_slots(SlotsBy::cores, 2, machine)),
                ElementsAre(ElementsAre(0, 1, 4, 5), ElementsAre(2, 3, 6, 7)));
    for (std::uint32_t slots = 1; slots <= 8; ++slots) {
        const auto parts = cores_of(plan_slots(SlotsBy::cores, slots, machine));
        ASSERT_EQ(parts.size(), slots);
        std::set<std::uint32_t> seen;
        for (const auto& part : parts) {
            EXPECT_EQ(part.size(), 8U / slots);
            for (const std::uint32_t core : part) {
                EXPECT_TRUE(seen.insert(core).second) << core << " is in two of " << slots;
            }
        }
    }
}

TEST(SlotPlan, MoreSlotsThanCoresAreRefused) {
    const auto plan = plan_slots(SlotsBy::cores, 3, {{0, 1}, {}});
    ASSERT_FALSE(plan);
    EXPECT_EQ(plan.error().kind, ErrorKind::invalid_input);
    EXPECT_EQ(plan.error().message,
              "--slots 3: there is no core for each slot, but 2 cores for all; --slots-by none lets jobs share them");
    EXPECT_THAT(cores_of(plan_slots(SlotsBy::none, 3, {{0, 1}, {}})), ElementsAre(IsEmpty(), IsEmpty(), IsEmpty()));
}

TEST(SlotPlan, EachSlotHasAGpuWhereTheyAreAskedFor) {
    const SlotMachine machine{{0, 1, 2, 3}, {"GPU-a", "GPU-b"}};
    const auto plan = plan_slots(SlotsBy::devices, std::nullopt, machine);
    ASSERT_EQ(plan->size(), 2U);
    EXPECT_EQ((*plan)[0].device, "GPU-a");
    EXPECT_EQ((*plan)[1].device, "GPU-b");
    EXPECT_THAT((*plan)[1].cores, ElementsAre(2, 3));
    EXPECT_EQ(plan_slots(SlotsBy::devices, 1, machine)->size(), 1U);
    EXPECT_THAT(plan_slots(SlotsBy::devices, 3, machine).error().message, HasSubstr("--slots 3: there is no GPU"));
    EXPECT_THAT(plan_slots(SlotsBy::devices, std::nullopt, {{0}, {}}).error().message, HasSubstr("there is no GPU"));
    EXPECT_EQ((*plan_slots(SlotsBy::cores, 1, machine))[0].device, "") << "by cores a job sees every GPU";
}

TEST(SlotPlan, GpusAreThoseOfTheEnvironmentOrTheDriver) {
    const test::TemporaryFolder folder;
    for (const char* name : {"nvidia10", "nvidia2", "nvidiactl", "nvidia-uvm", "null"}) {
        std::ofstream(folder.path() / name) << "";
    }
    ::unsetenv("CUDA_VISIBLE_DEVICES");
    EXPECT_THAT(this_machine(folder.path()).devices, ElementsAre("0", "1"));
    EXPECT_THAT(this_machine(folder.path() / "none").devices, IsEmpty());
    ::setenv("CUDA_VISIBLE_DEVICES", "3, GPU-f00,-1,2", 1);
    EXPECT_THAT(this_machine(folder.path()).devices, ElementsAre("3", "GPU-f00"));
    ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
    EXPECT_THAT(this_machine(folder.path()).devices, IsEmpty());
    ::unsetenv("CUDA_VISIBLE_DEVICES");
    EXPECT_FALSE(this_machine().cores.empty());
}

}  // namespace
}  // namespace distilld
