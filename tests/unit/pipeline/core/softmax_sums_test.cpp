#include "pipeline/core/softmax_sums.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/random.hpp"
#include "pipeline/core/target_rows.hpp"

namespace distilld {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> random_logits(std::size_t count, std::uint64_t seed, double spread) {
    SplitMix64 random(seed);
    std::vector<float> logits(count);
    for (float& logit : logits) {
        logit = static_cast<float>((random.uniform() - 0.5) * spread);
    }
    return logits;
}

TEST(SoftmaxSums, AreThoseOfTheStandardLibrary) {
    for (const std::size_t count : {1U, 2U, 3U, 4U, 5U, 7U, 8U, 9U, 63U, 64U, 65U, 1000U, 4099U}) {
        for (const double spread : {0.0, 1.0, 30.0, 300.0, 3000.0}) {
            const auto logits = random_logits(count, count, spread);
            const float max = *std::max_element(logits.begin(), logits.end());
            EXPECT_EQ(largest(logits), max);
            double total = 0;
            double weighted = 0;
            std::vector<double> masses(count);
            write_masses(logits, max, masses);
            for (std::size_t i = 0; i < count; ++i) {
                const double shifted = static_cast<double>(logits[i]) - max;
                const double mass = std::exp(shifted);
                total += mass;
                weighted += mass * shifted;
                EXPECT_NEAR(masses[i], mass, 2e-15 * mass + 1e-300) << shifted;
            }
            EXPECT_NEAR(sum_of_masses(logits, max), total, 1e-14 * total);
            const WeightedMasses both = weighted_masses(logits, max);
            EXPECT_NEAR(both.total, total, 1e-14 * total);
            EXPECT_NEAR(both.weighted, weighted, 1e-14 * std::abs(weighted) + 1e-290);
        }
    }
}

TEST(SoftmaxSums, TakeWhatCannotBeForNothing) {
    const std::vector<float> logits{-kInfinity, 2.0F, -kInfinity, -1e30F, 2.0F};
    EXPECT_EQ(sum_of_masses(logits, 2.0F), 2.0);
    EXPECT_EQ(weighted_masses(logits, 2.0F).weighted, 0.0);
    EXPECT_EQ(largest(logits), 2.0F);
    const std::vector<float> none(9, -kInfinity);
    EXPECT_EQ(sum_of_masses(none, 1.0F), 0.0);
    EXPECT_EQ(largest(none), -kInfinity);
}

/// As it was reduced before there were blocks: one logit after the other, ties by id.
TEST(SoftmaxSums, ReduceALargeVocabularyToTheVerySameEntries) {
    constexpr std::uint32_t kVocabulary = 5003;
    constexpr std::uint32_t kEntries = 37;
    std::uint64_t other_bits = 0;
    for (std::uint64_t seed = 0; seed < 400; ++seed) {
        auto logits = random_logits(kVocabulary, seed, seed % 3 == 0 ? 4.0 : 40.0);
        if (seed % 2 == 0) {
            for (float& logit : logits) {
                logit = std::round(logit);  // ties
            }
        }
        TopKReducer reducer(1, 1, kVocabulary, kEntries);
        ASSERT_TRUE(reducer.add_row(logits));
        const TeacherTargets reduced = reducer.finish();
        std::vector<std::int32_t> order(kVocabulary);
        for (std::uint32_t i = 0; i < kVocabulary; ++i) {
            order[i] = static_cast<std::int32_t>(i);
        }
        std::ranges::partial_sort(order, order.begin() + kEntries, [&](std::int32_t a, std::int32_t b) {
            const float left = logits[static_cast<std::size_t>(a)];
            const float right = logits[static_cast<std::size_t>(b)];
            return left != right ? left > right : a < b;
        });
        const float max = logits[static_cast<std::size_t>(order[0])];
        double inside = 0;
        std::vector<bool> is_inside(kVocabulary);
        for (std::uint32_t i = 0; i < kEntries; ++i) {
            is_inside[static_cast<std::size_t>(order[i])] = true;
            inside += std::exp(static_cast<double>(logits[static_cast<std::size_t>(order[i])]) - max);
        }
        double outside = 0;
        for (std::uint32_t id = 0; id < kVocabulary; ++id) {
            outside += is_inside[id] ? 0 : std::exp(static_cast<double>(logits[id]) - max);
        }
        const double log_total = std::log(inside + outside);
        for (std::uint32_t i = 0; i < kEntries; ++i) {
            ASSERT_EQ(element_as_id(reduced.ids, i), static_cast<std::uint32_t>(order[i])) << seed;
            const double exact = static_cast<double>(logits[static_cast<std::size_t>(order[i])]) - max - log_total;
            other_bits += element_as_float(reduced.values, i) == static_cast<float>(exact) ? 0 : 1;
        }
        other_bits += element_as_float(reduced.tail, 0) == static_cast<float>(std::log(outside) - log_total) ? 0 : 1;
    }
    EXPECT_EQ(other_bits, 0U) << "of 15,200 floats";
}

}  // namespace
}  // namespace distilld
