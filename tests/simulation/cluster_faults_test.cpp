#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/simulation/cluster_world.hpp"

namespace distilld::test {
namespace {

std::uint64_t environment_number(const char* variable, std::uint64_t otherwise) {
    const char* text = std::getenv(variable);
    return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

/// scripts/simulate-cluster.sh takes more seeds; one with DISTILLD_TRACE shows what happened.
TEST(ClusterFaults, LoseNoJobAndDoubleNothing) {
    const std::uint64_t first = environment_number("DISTILLD_FIRST_SEED", 1);
    const std::uint64_t seeds = environment_number("DISTILLD_SEEDS", 200);
    ClusterResult sum;
    for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
        ClusterOptions options = drawn_cluster(seed);
        options.trace = std::getenv("DISTILLD_TRACE") != nullptr;
        const ClusterResult result = run_cluster(options);
        for (const std::string& violation : result.violations) {
            ADD_FAILURE() << "seed " << seed << ": " << violation;
        }
        sum.attempts += result.attempts;
        sum.restarts += result.restarts;
        sum.events += result.events;
        sum.virtual_seconds += result.virtual_seconds;
    }
    std::printf("%llu seeds: %llu attempts, %llu ends of the service, %llu events, %.0f virtual hours\n",
                static_cast<unsigned long long>(seeds), static_cast<unsigned long long>(sum.attempts),
                static_cast<unsigned long long>(sum.restarts), static_cast<unsigned long long>(sum.events),
                sum.virtual_seconds / 3600);
    EXPECT_TRUE(seeds < 100 || sum.restarts > seeds / 4) << "faults had no effect";
}

TEST(ClusterFaults, TheSimulationFindsDefects) {
    for (const auto defect : {ClusterOptions::Defect::no_fence, ClusterOptions::Defect::loses_commits}) {
        bool found = false;
        for (std::uint64_t seed = 1; seed <= 200 && !found; ++seed) {
            ClusterOptions options = drawn_cluster(seed);
            options.defect = defect;
            found = !run_cluster(options).violations.empty();
        }
        EXPECT_TRUE(found) << static_cast<int>(defect);
    }
}

TEST(ClusterFaults, TheSameSeedIsTheSameRun) {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
        const ClusterResult one = run_cluster(drawn_cluster(seed));
        const ClusterResult other = run_cluster(drawn_cluster(seed));
        EXPECT_EQ(one.virtual_seconds, other.virtual_seconds) << seed;
        EXPECT_EQ(one.attempts, other.attempts) << seed;
        EXPECT_EQ(one.events, other.events) << seed;
    }
}

}  // namespace
}  // namespace distilld::test
