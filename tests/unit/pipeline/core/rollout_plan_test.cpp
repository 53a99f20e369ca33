#include "pipeline/core/rollout_plan.hpp"

#include <gtest/gtest.h>

#include <set>

namespace distilld {
namespace {

RolloutPlan plan_of(std::uint64_t staleness, std::uint32_t batch_size = 4, bool ends_epochs = false) {
    return {BatchPlan(10, batch_size, 1).steps_of(2), 10, batch_size, ends_epochs, 42, staleness};
}

TEST(RolloutPlan, AStepIsWrittenByTheWeightsOfExactlyKStepsBefore) {
    for (const std::uint64_t staleness : {0, 1, 3}) {
        const RolloutPlan plan = plan_of(staleness);
        for (std::uint64_t micro_batch = 0; micro_batch < 20; ++micro_batch) {
            const std::uint64_t step = micro_batch / 2;
            EXPECT_EQ(plan.version_of(micro_batch), step < staleness ? 0 : step - staleness);
            EXPECT_LT(micro_batch, plan.end_of(plan.version_of(micro_batch))) << "may be written with these weights";
        }
        EXPECT_EQ(plan.end_of(5), 2 * (5 + staleness + 1));
        EXPECT_EQ(plan.version_of(plan.end_of(5)), 6U) << "the next one needs the next weights";
    }
}

TEST(RolloutPlan, SeedsAreOfRowAndEpoch) {
    const RolloutPlan plan = plan_of(0);
    std::set<std::uint64_t> seeds;
    for (std::uint64_t position = 0; position < 40; ++position) {  // four epochs
        const std::uint64_t row = position % 10;
        EXPECT_EQ(plan.epoch_of(position / 4, position % 4), position / 10);
        const std::uint64_t seed = plan.seed_of(position / 4, position % 4, row);
        EXPECT_LT(seed, std::uint64_t{1} << 31U);
        seeds.insert(seed);
        EXPECT_EQ(plan_of(2, 2).seed_of(position / 2, position % 2, row), seed) << "in smaller micro-batches";
    }
    EXPECT_EQ(seeds.size(), 40U);
    RolloutPlan other = plan;
    other.seed = 43;
    EXPECT_NE(other.seed_of(0, 0, 3), plan.seed_of(0, 0, 3));
    const RolloutPlan ends = plan_of(0, 4, true);
    EXPECT_EQ(ends.epoch_of(2, 1), 0U) << "the last micro-batch of an epoch has the two rows that are left";
    EXPECT_EQ(ends.epoch_of(3, 0), 1U);
}

TEST(RolloutPlan, ADatasetsRowsTakeThePlacesOfPromptsByRowAndEpoch) {
    RolloutPlan plan = plan_of(0);
    EXPECT_TRUE(plan.answers(0, 0, 0)) << "by default all are answered";
    plan.lmbda = 0.25;
    plan.dataset_rows = 4;
    RolloutPlan smaller = plan_of(1, 2);
    smaller.lmbda = plan.lmbda;
    smaller.dataset_rows = plan.dataset_rows;
    std::uint64_t answered = 0;
    for (std::uint64_t position = 0; position < 4000; ++position) {
        const std::uint64_t row = position * 7 % 10;
        const bool answers = plan.answers(position / 4, position % 4, row);
        answered += answers ? 1 : 0;
        EXPECT_EQ(smaller.answers(position / 2, position % 2, row), answers) << "in smaller micro-batches";
        const std::uint64_t stands_in = plan.dataset_row(position / 4, position % 4, row);
        EXPECT_EQ(stands_in, (position / 10 * 10 + row) % 4);
        EXPECT_EQ(smaller.dataset_row(position / 2, position % 2, row), stands_in);
    }
    EXPECT_NEAR(static_cast<double>(answered), 1000, 90);  // three standard deviations
    plan.lmbda = 0;
    EXPECT_FALSE(plan.answers(0, 0, 0));
}

}  // namespace
}  // namespace distilld
