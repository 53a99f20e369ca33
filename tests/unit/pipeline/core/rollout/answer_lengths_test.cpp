#include "pipeline/core/rollout/answer_lengths.hpp"

#include <gmock/gmock.h>

#include <map>

namespace distilld {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(AnswerLengths, AreCountedUpToTheirBounds) {
    std::vector<AnswersOfLength> lengths;
    for (const std::uint64_t tokens : {300'000, 9, 2, 12, 1, 13, 2, 262'144}) {
        count_length(lengths, tokens);
    }
    std::map<std::uint64_t, std::uint64_t> said;
    for (const AnswersOfLength& one : lengths) {
        EXPECT_TRUE(said.empty() || said.rbegin()->first < one.up_to) << "they ascend";
        said[one.up_to] = one.answers;
    }
    EXPECT_THAT(said,
                ElementsAre(Pair(1, 1), Pair(2, 2), Pair(12, 2), Pair(16, 1), Pair(262'144, 1), Pair(300'000, 1)));
    const std::vector<std::uint64_t> counts = counts_by_bound(lengths);
    ASSERT_EQ(counts.size(), kAnswerLengthBounds.size() + 1);
    EXPECT_EQ(counts[0], 1U);
    EXPECT_EQ(counts[1], 2U);
    EXPECT_EQ(counts[4], 2U) << "up to 12";
    EXPECT_EQ(counts[counts.size() - 2], 1U);
    EXPECT_EQ(counts.back(), 1U) << "above all bounds";
}

}  // namespace
}  // namespace distilld
