#include "models/serving/top_k.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace distilld::models {
namespace {

std::vector<std::uint32_t> sorted_ids(const std::vector<float>& values) {
    std::vector<std::uint32_t> ids(values.size());
    std::iota(ids.begin(), ids.end(), 0U);
    std::stable_sort(ids.begin(), ids.end(), [&](auto a, auto b) { return values[a] > values[b]; });
    return ids;
}

TEST(TopK, EqualsTheHeadOfAStableSort) {
    std::mt19937 random(3);
    for (const int distinct : {2, 5, 1 << 20}) {  // few distinct values: nearly all tie
        for (const std::size_t size : {1U, 2U, 31U, 32U, 33U, 100U, 1000U}) {
            std::vector<float> values(size);
            for (float& value : values) {
                value = static_cast<float>(std::uniform_int_distribution<int>(-distinct, distinct)(random));
            }
            const auto expected = sorted_ids(values);
            for (const std::size_t k : {std::size_t{1}, std::size_t{2}, size / 2, size - 1, size}) {
                if (k == 0 || k > size) {
                    continue;
                }
                std::vector<TopEntry> best;
                select_top_k(values, static_cast<std::uint32_t>(k), best);
                ASSERT_EQ(best.size(), k);
                for (std::size_t place = 0; place < k; ++place) {
                    ASSERT_EQ(best[place].id, expected[place]) << "size " << size << ", k " << k;
                    ASSERT_EQ(best[place].value, values[expected[place]]);
                }
            }
        }
    }
}

TEST(TopK, AscendingValuesReplaceEveryEntry) {
    std::vector<float> values(200);
    std::iota(values.begin(), values.end(), -100.0F);
    std::vector<TopEntry> best(7, TopEntry{1e9F, 9});  // what an earlier row left
    select_top_k(values, 3, best);
    ASSERT_EQ(best.size(), 3U);
    EXPECT_EQ(best[0].id, 199U);
    EXPECT_EQ(best[1].id, 198U);
    EXPECT_EQ(best[2].id, 197U);
}

}  // namespace
}  // namespace distilld::models
