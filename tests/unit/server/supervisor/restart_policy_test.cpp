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

}  // namespace
}  // namespace distilld
