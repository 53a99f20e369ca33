#include "models/losses/topk_targets.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace distilld::models {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

TEST(TemperTopkRow, AtTemperatureOneGivesTheProbabilitiesBack) {
    const std::vector<float> log_p = {std::log(0.5F), std::log(0.25F), std::log(0.125F)};
    std::vector<float> p(3);
    TopkRow row;
    for (const float tail : {kUnknownTail, std::log(0.125F)}) {
        ASSERT_TRUE(temper_topk_row(log_p, tail, 100, 1.0, p, row));
        EXPECT_NEAR(p[0], 0.5, 1e-6);
        EXPECT_NEAR(p[1], 0.25, 1e-6);
        EXPECT_NEAR(p[2], 0.125, 1e-6);
        EXPECT_NEAR(row.tail, 0.125, 1e-6);
        EXPECT_NEAR(row.negative_entropy, 1.75 * std::log(0.5), 1e-6);
    }
}

TEST(TemperTopkRow, SpreadsTheTailEvenlyAtOtherTemperatures) {
    const std::vector<float> log_p = {std::log(0.6F), std::log(0.2F)};
    std::vector<float> p(2);
    TopkRow row;
    ASSERT_TRUE(temper_topk_row(log_p, std::log(0.2F), 12, 2.0, p, row));
    // The same by writing the ten other tokens out.
    const double a = std::sqrt(0.6);
    const double b = std::sqrt(0.2);
    const double rest = 10 * std::sqrt(0.02);
    const double sum = a + b + rest;
    EXPECT_NEAR(p[0], a / sum, 1e-6);
    EXPECT_NEAR(p[1], b / sum, 1e-6);
    EXPECT_NEAR(row.tail, rest / sum, 1e-6);
}

TEST(TemperTopkRow, AMassAboveOneHasNoTail) {
    // Half-precision log-probabilities may add up to a little more than 1.
    const std::vector<float> log_p = {std::log(0.9F), std::log(0.1001F)};
    std::vector<float> p(2);
    TopkRow row;
    for (const double temperature : {1.0, 2.0}) {
        ASSERT_TRUE(temper_topk_row(log_p, kUnknownTail, 50, temperature, p, row));
        EXPECT_EQ(row.tail, 0);
        EXPECT_NEAR(p[0] + p[1], 1, 1e-6);
        EXPECT_TRUE(std::isfinite(row.negative_entropy));
    }
}

TEST(TemperTopkRow, WhereTheTopkCoverTheVocabularyThereIsNoTail) {
    const std::vector<float> log_p = {std::log(0.7F), std::log(0.2F)};
    std::vector<float> p(2);
    TopkRow row;
    ASSERT_TRUE(temper_topk_row(log_p, std::log(0.1F), 2, 2.0, p, row));
    EXPECT_EQ(row.tail, 0);
    EXPECT_NEAR(p[0] + p[1], 1, 1e-6);
}

TEST(TemperTopkRow, ZeroProbabilitiesAreFineGarbageIsNot) {
    std::vector<float> p(2);
    TopkRow row;
    ASSERT_TRUE(temper_topk_row(std::vector<float>{0.0F, kMinusInfinity}, kMinusInfinity, 9, 2.0, p, row));
    EXPECT_EQ(p[0], 1);
    EXPECT_EQ(p[1], 0);
    EXPECT_EQ(row.tail, 0);
    EXPECT_EQ(row.negative_entropy, 0);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    EXPECT_FALSE(temper_topk_row(std::vector<float>{nan, -1.0F}, kUnknownTail, 9, 1.0, p, row));
    EXPECT_FALSE(temper_topk_row(std::vector<float>{-1.0F, -1.0F}, nan, 9, 1.0, p, row));
    EXPECT_FALSE(temper_topk_row(std::vector<float>{-kMinusInfinity, -1.0F}, kUnknownTail, 9, 1.0, p, row));
    EXPECT_FALSE(temper_topk_row(std::vector<float>{kMinusInfinity, kMinusInfinity}, kMinusInfinity, 9, 1.0, p, row));
}

}  // namespace
}  // namespace distilld::models
