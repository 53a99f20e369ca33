#include "models/serving/top_rows.hpp"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cstdint>
#include <vector>

namespace distilld::models {
namespace {

TEST(TopRows, WhatADeviceSelectsIsWhatTheHostSelects) {
    constexpr std::int64_t kRows = 20;
    for (const std::int64_t distinct : {1, 2, 5, 100, 1 << 20}) {  // few distinct values: nearly all tie
        for (const std::int64_t size : {1, 2, 9, 33, 500}) {
            torch::manual_seed(static_cast<std::uint64_t>(distinct + size));
            const torch::Tensor values = torch::randint(distinct, {kRows, size}).to(torch::kFloat);
            for (const std::int64_t k : {std::int64_t{1}, size / 2, size - 1, size}) {
                if (k == 0) {
                    continue;
                }
                const TopRows here(values, static_cast<std::uint32_t>(k));
                const TopRows there(values, static_cast<std::uint32_t>(k), /*on_device=*/true);
                std::vector<TopEntry> expected;
                std::vector<TopEntry> best(3, TopEntry{1e9F, 9});  // what an earlier row left
                for (std::int64_t row = 0; row < kRows; ++row) {
                    here.select(row, expected);
                    there.select(row, best);
                    ASSERT_EQ(best.size(), expected.size());
                    for (std::size_t place = 0; place < best.size(); ++place) {
                        ASSERT_EQ(best[place].id, expected[place].id) << distinct << " " << size << " " << k;
                        ASSERT_EQ(best[place].value, expected[place].value);
                    }
                }
            }
        }
    }
}

}  // namespace
}  // namespace distilld::models
