#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/simulation/rank_world.hpp"

namespace distilld::test {
namespace {

using Defect = RankWorldOptions::Defect;

std::uint64_t number_of(const char* variable, std::uint64_t otherwise) {
    const char* text = std::getenv(variable);
    return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

/// scripts/simulate-ranks.sh takes more seeds; one with DISTILLD_TRACE shows what happened.
TEST(RankFaults, EndAllRanksAndLoseNothing) {
    const std::uint64_t first = number_of("DISTILLD_FIRST_SEED", 1);
    const std::uint64_t seeds = number_of("DISTILLD_SEEDS", 200);
    std::uint64_t attempts = 0;
    std::uint64_t verdicts = 0;
    double seconds = 0;
    for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
        RankWorldOptions options = drawn_options(seed);
        options.trace = std::getenv("DISTILLD_TRACE") != nullptr;
        const RankWorldResult result = run_rank_world(options);
        for (const std::string& violation : result.violations) {
            ADD_FAILURE() << "seed " << seed << ": " << violation;
        }
        attempts += result.attempts;
        verdicts += result.verdicts;
        seconds += result.virtual_seconds;
    }
    std::printf("%llu seeds: %llu attempts, %llu verdicts, %.0f virtual hours\n",
                static_cast<unsigned long long>(seeds), static_cast<unsigned long long>(attempts),
                static_cast<unsigned long long>(verdicts), seconds / 3600);
    EXPECT_TRUE(seeds < 100 || attempts > seeds) << "faults had no effect";
}

TEST(RankFaults, TheSimulationFindsDefects) {
    for (const Defect defect :
         {Defect::ignores_silence, Defect::adds_in_order_of_arrival, Defect::commits_halves, Defect::leaves_at_once}) {
        bool found = false;
        for (std::uint64_t seed = 1; seed <= 200 && !found; ++seed) {
            RankWorldOptions options = drawn_options(seed);
            options.defect = defect;
            found = !run_rank_world(options).violations.empty();
        }
        EXPECT_TRUE(found) << static_cast<int>(defect);
    }
}

TEST(RankFaults, TheSameSeedIsTheSameRun) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        const RankWorldResult one = run_rank_world(drawn_options(seed));
        const RankWorldResult other = run_rank_world(drawn_options(seed));
        EXPECT_EQ(one.virtual_seconds, other.virtual_seconds) << seed;
        EXPECT_EQ(one.attempts, other.attempts) << seed;
    }
}

}  // namespace
}  // namespace distilld::test
