#include "models/network/dropout.hpp"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

namespace distilld::models {
namespace {

TEST(Dropout, TheLoopAndTheTensorsDrawTheSame) {
    for (const std::uint64_t key : {0ULL, 1ULL, 0x8000000000000000ULL, 0xFFFFFFFFFFFFFFFFULL}) {
        const auto drawn = drawn_by_tensors(100003, key, torch::kCPU);
        EXPECT_GE(drawn.min().item<std::int64_t>(), 0);
        EXPECT_LT(drawn.max().item<std::int64_t>(), std::int64_t{1} << 32);
        for (const double rate : {0.01, 0.3, 0.5, 0.77, 0.99}) {
            const auto by_loop = dropout_mask(torch::empty({100003}), rate, key).ne(0);
            const auto border = static_cast<std::int64_t>(std::llround(rate * 4294967296.0));
            EXPECT_TRUE(torch::equal(by_loop, drawn.ge(border))) << key << " " << rate;
        }
    }
}

TEST(Dropout, DrawsWhatSplitMix64Does) {
    // The first outputs of its reference implementation (Vigna, splitmix64.c) from state 1234567, their upper halves.
    const auto drawn = drawn_by_tensors(3, 1234567, torch::kCPU);
    EXPECT_EQ(drawn[0].item<std::int64_t>(), static_cast<std::int64_t>(6457827717110365317ULL >> 32U));
    EXPECT_EQ(drawn[1].item<std::int64_t>(), static_cast<std::int64_t>(3203168211198807973ULL >> 32U));
    EXPECT_EQ(drawn[2].item<std::int64_t>(), static_cast<std::int64_t>(9817491932198370423ULL >> 32U));
}

TEST(Dropout, LeavesOutItsShareAndKeepsTheMean) {
    for (const double rate : {0.0, 0.1, 0.5, 0.9}) {
        const auto mask = dropout_mask(torch::empty({1000, 1000}), rate, 42);
        EXPECT_NEAR(mask.eq(0).to(torch::kDouble).mean().item<double>(), rate, 3e-3);
        EXPECT_NEAR(mask.mean().item<double>(), 1.0, 1e-2);
        EXPECT_FLOAT_EQ(mask.max().item<float>(), static_cast<float>(1.0 / (1.0 - rate)));
    }
}

TEST(Dropout, IsAFunctionOfItsNumbersAlone) {
    const auto like = torch::empty({64, 65}, torch::kBFloat16);
    const auto mask = dropout_mask(like, 0.5, dropout_key(7, 3, number_of_name("a")));
    EXPECT_EQ(mask.scalar_type(), torch::kBFloat16);
    const int threads = at::get_num_threads();
    at::set_num_threads(threads == 1 ? 2 : 1);
    EXPECT_TRUE(torch::equal(mask, dropout_mask(like, 0.5, dropout_key(7, 3, number_of_name("a")))));
    at::set_num_threads(threads);
    EXPECT_FALSE(torch::equal(mask, dropout_mask(like, 0.5, dropout_key(8, 3, number_of_name("a")))));
    EXPECT_FALSE(torch::equal(mask, dropout_mask(like, 0.5, dropout_key(7, 4, number_of_name("a")))));
    EXPECT_FALSE(torch::equal(mask, dropout_mask(like, 0.5, dropout_key(7, 3, number_of_name("b")))));
}

}  // namespace
}  // namespace distilld::models
