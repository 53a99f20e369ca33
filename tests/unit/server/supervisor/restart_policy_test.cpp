#include "server/supervisor/restart_policy.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace distilld {
namespace {

using namespace std::chrono_literals;

constexpr RestartLimits kDefaults;

TEST(RestartPolicy, GivesUpAfterDeathsInARowWithoutProgress) {
    RestartPolicy policy;
    EXPECT_EQ(policy.on_died(kDefaults, {0, 0}), 1s);
    EXPECT_EQ(policy.on_died(kDefaults, {0, 0}), 2s);
    EXPECT_EQ(policy.on_died(kDefaults, {0, 0}), 4s);
    EXPECT_EQ(policy.on_died(kDefaults, {0, 0}), std::nullopt);
    EXPECT_EQ(policy.given_up_text(), "; it died 4 times in a row without progress");
}

TEST(RestartPolicy, AStepThatNoRunReachedBeforeIsProgress) {
    RestartPolicy policy;
    EXPECT_EQ(policy.on_died(kDefaults, {0, 25}), 1s);
    EXPECT_EQ(policy.on_died(kDefaults, {20, 25}), 1s) << "it went on from a checkpoint that is new";
    EXPECT_EQ(policy.on_died(kDefaults, {20, 25}), 2s) << "the same steps again";
    EXPECT_EQ(policy.on_died(kDefaults, {20, 24}), 4s);
    EXPECT_EQ(policy.on_died(kDefaults, {20, 26}), 1s);
    EXPECT_EQ(policy.on_died(kDefaults, {20, 21}), 2s);
    EXPECT_EQ(policy.on_died(kDefaults, {20, 21}), 4s);
    EXPECT_EQ(policy.on_died(kDefaults, {20, 26}), std::nullopt);
}

TEST(RestartPolicy, NoRestartMeansNone) {
    RestartPolicy policy;
    EXPECT_EQ(policy.on_died({.max_restarts = 0}, {0, 100}), std::nullopt);
}

TEST(RestartPolicy, WhatCannotBeStartedIsTriedForEver) {
    RestartPolicy policy;
    std::vector<std::chrono::milliseconds> pauses;
    for (int number = 0; number < 7; ++number) {
        pauses.push_back(policy.on_not_started(kDefaults));
    }
    EXPECT_EQ(pauses, (std::vector<std::chrono::milliseconds>{1s, 2s, 4s, 8s, 16s, 30s, 30s}));
    EXPECT_EQ(policy.on_died(kDefaults, {0, 0}), 1s) << "deaths are counted apart";
    EXPECT_EQ(policy.on_not_started(kDefaults), 1s) << "it had been started meanwhile";
}

TEST(RestartPolicy, OutOfMemoryHalvesTheMicroBatchUpToItsOwnLimit) {
    RestartPolicy policy;
    MicroBatches cut{64, 2};
    for (const MicroBatches next : {MicroBatches{32, 4}, MicroBatches{16, 8}, MicroBatches{8, 16}}) {
        const auto verdict = policy.on_out_of_memory(kDefaults, cut);
        ASSERT_EQ(verdict.smaller, next);
        EXPECT_EQ(verdict.pause, 1s);
        cut = next;
    }
    const auto last = policy.on_out_of_memory(kDefaults, cut);
    EXPECT_EQ(last.smaller, std::nullopt);
    EXPECT_EQ(last.text,
              "; it was started again 3 times with smaller micro-batches, the last with batch_size 8 and micro_batches "
              "16, and is not any more");
    EXPECT_EQ(policy.on_died(kDefaults, {0, 0}), 1s) << "deaths are counted apart";
}

TEST(RestartPolicy, SaysWhatIsHalved) {
    RestartPolicy policy;
    EXPECT_EQ(policy.on_out_of_memory(kDefaults, {8, 3}).text,
              "; out-of-memory restart 1 of 3 from the newest checkpoint in 1 s, with batch_size 4 and micro_batches 6 "
              "in place of batch_size 8 and micro_batches 3");
}

TEST(RestartPolicy, WhatCannotBeHalvedHasFailed) {
    for (const MicroBatches cut : {MicroBatches{1, 8}, MicroBatches{3, 2}, MicroBatches{2, 40000}}) {
        RestartPolicy policy;
        const auto verdict = policy.on_out_of_memory(kDefaults, cut);
        EXPECT_EQ(verdict.smaller, std::nullopt) << cut.batch_size;
        EXPECT_EQ(verdict.text.find("; batch_size " + std::to_string(cut.batch_size) + " and micro_batches "), 0U);
        EXPECT_NE(verdict.text.find("cannot be halved"), std::string::npos);
    }
    RestartPolicy policy;
    const auto none = policy.on_out_of_memory({.max_oom_restarts = 0}, {8, 1});
    EXPECT_EQ(none.smaller, std::nullopt);
    EXPECT_EQ(none.text, "");
}

TEST(MicroBatches, StandInTheSpec) {
    EXPECT_EQ(with_micro_batches(R"({"training":{"batch_size":"auto","seed":1},"output":"o"})", {4, 2}),
              R"({"training":{"batch_size":4,"seed":1,"micro_batches":2},"output":"o"})");
    EXPECT_EQ(with_micro_batches("{}", {4, 2}), R"({"training":{"batch_size":4,"micro_batches":2}})");
}

}  // namespace
}  // namespace distilld
