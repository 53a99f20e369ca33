#include "models/losses/topk_targets.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace distilld::models {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

struct Expected {
    std::vector<double> p;
    double tail = 0;
    double negative_entropy = 0;
};

/// The formula of topk_targets.hpp in fp64, entry by entry.
Expected expected_row(const std::vector<float>& log_p, float log_tail, std::int64_t vocabulary, double temperature) {
    const auto others = static_cast<double>(vocabulary) - static_cast<double>(log_p.size());
    Expected row;
    double known = 0;
    double total = 0;
    for (const float value : log_p) {
        known += std::exp(static_cast<double>(value));
        row.p.push_back(std::exp(value / temperature));
        total += row.p.back();
    }
    const double mass = log_tail == kUnknownTail ? std::max(0.0, 1 - known) : std::exp(static_cast<double>(log_tail));
    row.tail = others > 0 ? others * std::pow(mass / others, 1 / temperature) : 0;
    total += row.tail;
    const auto normalised = [&](double& p) {
        p /= total;
        row.negative_entropy += p > 0 ? p * std::log(p) : 0;
    };
    for (double& p : row.p) {
        normalised(p);
    }
    normalised(row.tail);
    return row;
}

void expect_row(const std::vector<float>& log_p, float log_tail, std::int64_t vocabulary, double temperature) {
    const Expected expected = expected_row(log_p, log_tail, vocabulary, temperature);
    std::vector<float> p(log_p.size());
    TopkRow row;
    ASSERT_TRUE(temper_topk_row(log_p, log_tail, vocabulary, temperature, p, row));
    for (std::size_t i = 0; i < p.size(); ++i) {
        // An exponent of size x is off by x·2⁻²⁴ at each of its roundings.
        EXPECT_NEAR(p[i], expected.p[i], 1e-6 * expected.p[i] * (1 - std::log(expected.p[i] + 1e-30)) + 1e-37) << i;
    }
    EXPECT_NEAR(row.tail, expected.tail, 1e-6 * expected.tail);
    EXPECT_NEAR(row.negative_entropy, expected.negative_entropy, 1e-6);
}

TEST(TemperTopkRow, AgreesWithFp64) {
    constexpr std::int64_t kVocabulary = 50000;
    std::mt19937 random(1);
    std::normal_distribution<double> normal;
    for (const std::size_t k : {1U, 5U, 16U, 64U, 67U}) {
        for (const double temperature : {1.0, 0.5, 2.0, 7.0}) {
            for (const double tail : {0.9, 0.3, 1e-9}) {
                SCOPED_TRACE(testing::Message() << k << " entries, T " << temperature << ", tail " << tail);
                std::vector<double> weights(k);
                double sum = 0;
                for (double& weight : weights) {
                    weight = std::exp(3 * normal(random));
                    sum += weight;
                }
                std::vector<float> log_p(k);
                for (std::size_t i = 0; i < k; ++i) {
                    log_p[i] = static_cast<float>(std::log(weights[i] / sum * (1 - tail)));
                }
                expect_row(log_p, static_cast<float>(std::log(tail)), kVocabulary, temperature);
                if (tail > 0.1) {
                    expect_row(log_p, kUnknownTail, kVocabulary, temperature);
                }
                expect_row(log_p, kMinusInfinity, kVocabulary, temperature);
                expect_row(log_p, kUnknownTail, static_cast<std::int64_t>(k), temperature);
                log_p[k / 2] = kMinusInfinity;
                expect_row(log_p, std::log(0.1F), kVocabulary, temperature);
            }
        }
    }
}

TEST(TemperTopkRow, KeepsWhatLiesFarBelow) {
    const std::vector<float> below(20, -200.0F);
    for (const double temperature : {1.0, 4.0}) {
        expect_row(below, -200.0F, 1000, temperature);  // normalised all the same
        expect_row(below, 0.0F, 1000, temperature);
        expect_row(below, kUnknownTail, 1000, temperature);
        expect_row({0.0F, -200.0F, kMinusInfinity}, kMinusInfinity, 1000, temperature);
        expect_row({kMinusInfinity, kMinusInfinity}, 0.0F, 1000, temperature);
    }
}

TEST(TemperTopkRow, AnUnknownTailBesideAnAlmostCertainTokenIsExact) {
    const std::vector<float> log_p = {-2e-6F, -14.5F, -15.0F};
    for (const double temperature : {1.0, 2.0}) {
        expect_row(log_p, kUnknownTail, 50000, temperature);
    }
}

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
    EXPECT_FALSE(temper_topk_row(std::vector<float>{nan, nan}, std::log(0.5F), 9, 1.0, p, row));
    EXPECT_FALSE(temper_topk_row(std::vector<float>{kMinusInfinity, nan}, std::log(0.5F), 9, 1.0, p, row));
    EXPECT_FALSE(temper_topk_row(std::vector<float>{-kMinusInfinity, -1.0F}, kUnknownTail, 9, 1.0, p, row));
    EXPECT_FALSE(temper_topk_row(std::vector<float>{-kMinusInfinity, -kMinusInfinity}, 0.0F, 9, 2.0, p, row));
    EXPECT_FALSE(temper_topk_row(std::vector<float>{kMinusInfinity, kMinusInfinity}, kMinusInfinity, 9, 1.0, p, row));
}

}  // namespace
}  // namespace distilld::models
