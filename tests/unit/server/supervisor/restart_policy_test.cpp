#include "server/supervisor/restart_policy.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "api/job_spec.hpp"

namespace distilld {
namespace {

using namespace std::chrono_literals;

constexpr RestartLimits kDefaults;

TEST(RestartPolicy, GivesUpAfterDeathsInARowWithoutProgress) {
    RestartPolicy policy;
    EXPECT_EQ(policy.on_died(kDefaults, {0, 0}).pause, 1s);
    EXPECT_EQ(policy.on_died(kDefaults, {0, 0}).pause, 2s);
    EXPECT_EQ(policy.on_died(kDefaults, {0, 0}).pause, 4s);
    const auto last = policy.on_died(kDefaults, {0, 0});
    EXPECT_EQ(last.pause, std::nullopt);
    EXPECT_EQ(last.text, "; it died 4 times in a row without progress");
}

TEST(RestartPolicy, AStepThatNoRunReachedBeforeIsProgress) {
    RestartPolicy policy;
    EXPECT_EQ(policy.on_died(kDefaults, {0, 25}).pause, 1s);
    EXPECT_EQ(policy.on_died(kDefaults, {20, 25}).pause, 1s) << "it went on from a checkpoint that is new";
    EXPECT_EQ(policy.on_died(kDefaults, {20, 25}).pause, 2s) << "the same steps again";
    EXPECT_EQ(policy.on_died(kDefaults, {20, 24}).pause, 4s);
    EXPECT_EQ(policy.on_died(kDefaults, {20, 26}).pause, 1s);
    EXPECT_EQ(policy.on_died(kDefaults, {20, 21}).pause, 2s);
    EXPECT_EQ(policy.on_died(kDefaults, {20, 21}).pause, 4s);
    EXPECT_EQ(policy.on_died(kDefaults, {20, 26}).pause, std::nullopt);
}

TEST(RestartPolicy, NoRestartMeansNone) {
    RestartPolicy policy;
    EXPECT_EQ(policy.on_died({.max_restarts = 0}, {0, 100}).pause, std::nullopt);
}

TEST(RestartPolicy, WhatCannotBeStartedIsTriedForEver) {
    RestartPolicy policy;
    std::vector<std::chrono::milliseconds> pauses;
    for (int number = 0; number < 7; ++number) {
        pauses.push_back(policy.on_not_started(kDefaults).pause.value());
    }
    EXPECT_EQ(pauses, (std::vector<std::chrono::milliseconds>{1s, 2s, 4s, 8s, 16s, 30s, 30s}));
    EXPECT_EQ(policy.on_died(kDefaults, {0, 0}).pause, 1s) << "deaths are counted apart";
    EXPECT_EQ(policy.on_not_started(kDefaults).pause, 1s) << "it had been started meanwhile";
}

TEST(RestartPolicy, OutOfMemoryHalvesTheMicroBatchUpToItsOwnLimit) {
    RestartPolicy policy;
    MicroBatches split{64, 2};
    for (const MicroBatches next : {MicroBatches{32, 4}, MicroBatches{16, 8}, MicroBatches{8, 16}}) {
        const auto verdict = policy.on_died(kDefaults, {0, 0, split}, true);
        ASSERT_EQ(verdict.smaller, next);
        EXPECT_EQ(verdict.pause, 1s);
        split = next;
    }
    const auto last = policy.on_died(kDefaults, {0, 0, split}, true);
    EXPECT_EQ(last.smaller, std::nullopt);
    EXPECT_EQ(
        last.text,
        "; it was started again 3 times with smaller micro-batches, the last time with batch_size 8 and micro_batches "
        "16, and is not restarted again");
    EXPECT_EQ(policy.on_died(kDefaults, {0, 0}).pause, 1s) << "deaths are counted apart";
}

TEST(RestartPolicy, SaysWhatIsHalved) {
    RestartPolicy policy;
    EXPECT_EQ(policy.on_died(kDefaults, {0, 0, {8, 3}}, true).text,
              "; out-of-memory restart 1 of 3 from the newest checkpoint in 1 s, with batch_size 4 and micro_batches 6 "
              "in place of batch_size 8 and micro_batches 3");
}

TEST(RestartPolicy, WhatCannotBeHalvedHasFailed) {
    for (const MicroBatches split : {MicroBatches{1, 8}, MicroBatches{3, 2}, MicroBatches{2, 40000}}) {
        RestartPolicy policy;
        const auto verdict = policy.on_died(kDefaults, {0, 0, split}, true);
        EXPECT_EQ(verdict.smaller, std::nullopt) << split.batch_size;
        EXPECT_EQ(verdict.text.find("; batch_size " + std::to_string(split.batch_size) + " and micro_batches "), 0U);
        EXPECT_NE(verdict.text.find("cannot be halved"), std::string::npos);
    }
    RestartPolicy policy;
    const auto none = policy.on_died({.max_oom_restarts = 0}, {0, 0, {8, 1}}, true);
    EXPECT_EQ(none.smaller, std::nullopt);
    EXPECT_EQ(none.text, "");
}

TEST(MicroBatches, StandInTheSpec) {
    WorkerStart start;
    start.spec_json = R"({"training":{"batch_size":"auto","seed":1},"output":"o"})";
    start.spec = std::make_shared<const JobSpec>();
    take_micro_batches(start, {4, 2});
    EXPECT_EQ(start.spec_json, R"({"training":{"batch_size":4,"seed":1,"micro_batches":2},"output":"o"})");
    EXPECT_EQ(start.spec->training.batch_size, 4U);
    EXPECT_EQ(start.spec->training.micro_batches, 2U);
    start = {};
    start.spec_json = "{}";
    take_micro_batches(start, {4, 2});
    EXPECT_EQ(start.spec_json, R"({"training":{"batch_size":4,"micro_batches":2}})");
    EXPECT_FALSE(start.spec);
}

}  // namespace
}  // namespace distilld
