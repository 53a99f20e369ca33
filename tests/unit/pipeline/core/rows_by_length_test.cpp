#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/random.hpp"
#include "pipeline/core/batch_plan.hpp"

namespace distilld {
namespace {

using Rows = std::vector<std::uint64_t>;
using Lengths = std::vector<std::uint32_t>;

/// Lengths as conversations have them: exp of a uniform number, 8 to 512.
std::shared_ptr<const Lengths> mixed_lengths(std::size_t count) {
    SplitMix64 random(7);
    auto lengths = std::make_shared<Lengths>(count);
    for (std::uint32_t& length : *lengths) {
        length = static_cast<std::uint32_t>(8 * std::pow(64.0, static_cast<double>(random.below(1 << 20)) / (1 << 20)));
    }
    return lengths;
}

/// Share of the positions of these micro-batches, each as wide as its longest row, that is padding.
double padding(const BatchPlan& plan, std::uint64_t batches, const Lengths& lengths) {
    double computed = 0;
    double filled = 0;
    for (std::uint64_t number = 0; number < batches; ++number) {
        const Rows rows = plan.rows_of(number);
        std::uint32_t columns = 0;
        for (const std::uint64_t row : rows) {
            filled += lengths[row];
            columns = std::max(columns, lengths[row]);
        }
        computed += static_cast<double>(columns) * static_cast<double>(rows.size());
    }
    return 1 - filled / computed;
}

TEST(RowsByLength, PaddingIsAtMostFivePercent) {
    const auto lengths = mixed_lengths(10'007);
    for (const std::uint32_t batch : {4, 8, 16}) {
        for (const Shuffle shuffle : {Shuffle::full, Shuffle::blocks}) {
            const std::uint64_t batches = 3 * lengths->size() / batch;
            const BatchPlan plan(lengths->size(), batch, 42, {shuffle, 4096, lengths});
            EXPECT_LT(padding(plan, batches, *lengths), 0.05) << "batch " << batch;
            EXPECT_GT(padding(BatchPlan(lengths->size(), batch, 42, {shuffle, 4096}), batches, *lengths), 0.4);
        }
    }
}

TEST(RowsByLength, EachRowIsSeenOnceAnEpochAndStaysInItsBlock) {
    for (const std::uint64_t count : {1, 7, 64, 1000}) {
        const auto lengths = mixed_lengths(count);
        for (const std::uint32_t batch : {1, 3, 8}) {
            for (const RowOrder& order :
                 {RowOrder{Shuffle::full, 0, lengths}, RowOrder{Shuffle::blocks, 100, lengths}}) {
                const BatchPlan plan(count, batch, 7, order);
                Rows visited;
                while (visited.size() < 4 * count) {
                    const Rows rows = plan.rows_of(visited.size() / batch);
                    visited.insert(visited.end(), rows.begin(), rows.end());
                }
                for (std::uint64_t epoch = 0; epoch < 4; ++epoch) {
                    const auto first = visited.begin() + static_cast<std::ptrdiff_t>(epoch * count);
                    Rows of_epoch(first, first + static_cast<std::ptrdiff_t>(count));
                    for (std::uint64_t i = 0; order.shuffle == Shuffle::blocks && i < count; ++i) {
                        EXPECT_EQ(of_epoch[i] / 100, i / 100) << "row " << of_epoch[i] << " has left its block";
                    }
                    std::ranges::sort(of_epoch);
                    Rows all(count);
                    std::iota(all.begin(), all.end(), std::uint64_t{0});
                    EXPECT_EQ(of_epoch, all) << count << " rows, batch " << batch << ", epoch " << epoch;
                }
            }
        }
    }
}

TEST(RowsByLength, AnEpochThatEndsWithASmallerMicroBatchHasEachRowOnce) {
    const auto lengths = mixed_lengths(203);
    for (const std::uint32_t batch : {8, 4, 2}) {  // cut smaller, as where memory does not suffice
        const BatchPlan plan(203, batch, 7, {Shuffle::full, 0, lengths, 8, true});
        const std::uint64_t of_epoch = (203 + batch - 1) / batch;
        Rows first;
        for (std::uint64_t number = of_epoch; number < 2 * of_epoch; ++number) {
            const Rows rows = plan.rows_of(number);
            EXPECT_EQ(rows.size(), std::min<std::uint64_t>(batch, 203 - first.size()));
            first.insert(first.end(), rows.begin(), rows.end());
        }
        Rows planned;
        for (std::uint64_t number = 26; number < 52; ++number) {
            const Rows rows = BatchPlan(203, 8, 7, {Shuffle::full, 0, lengths, 8, true}).rows_of(number);
            planned.insert(planned.end(), rows.begin(), rows.end());
        }
        EXPECT_EQ(first, planned);
        EXPECT_LT(padding(plan, of_epoch - 1, *lengths), 0.15);
        std::ranges::sort(first);
        Rows all(203);
        std::iota(all.begin(), all.end(), std::uint64_t{0});
        EXPECT_EQ(first, all);
    }
}

TEST(RowsByLength, DependsOnSeedAndEpochAlone) {
    const auto lengths = mixed_lengths(500);
    const RowOrder order{Shuffle::full, 0, lengths};
    const BatchPlan plan(500, 8, 3, order);
    for (std::uint64_t number = 200; number-- > 0;) {
        EXPECT_EQ(BatchPlan(500, 8, 3, order).rows_of(number), plan.rows_of(number)) << number;
    }
    EXPECT_NE(BatchPlan(500, 8, 4, order).rows_of(0), plan.rows_of(0));
    EXPECT_NE(plan.rows_of(63), plan.rows_of(0));
}

// The mean length of the micro-batches at each place of an epoch, over many seeds: the same at each.
TEST(RowsByLength, NoPlaceOfAnEpochHasLongerRows) {
    constexpr std::uint64_t kCount = 256;
    const auto lengths = mixed_lengths(kCount);
    std::vector<double> sums(kCount / 8);
    constexpr std::uint64_t kSeeds = 4000;
    double sum = 0;
    double squares = 0;
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
        const BatchPlan plan(kCount, 8, seed, {Shuffle::full, 0, lengths});
        for (std::uint64_t number = 0; number < sums.size(); ++number) {
            double length = 0;
            for (const std::uint64_t row : plan.rows_of(number)) {
                length += (*lengths)[row] / 8.0;
            }
            sums[number] += length;
            sum += length;
            squares += length * length;
        }
    }
    const double draws = static_cast<double>(kSeeds * sums.size());
    const double mean = sum / draws;
    const double of_a_mean = std::sqrt((squares / draws - mean * mean) / kSeeds);
    for (const double one : sums) {
        EXPECT_NEAR(one / kSeeds, mean, 4.5 * of_a_mean);
    }
}

TEST(RowsByLength, RowsThatAreNotShuffledStayAsTheyStand) {
    const auto lengths = mixed_lengths(10);
    EXPECT_EQ(BatchPlan(10, 5, 1, {Shuffle::off, 0, lengths}).rows_of(0), (Rows{0, 1, 2, 3, 4}));
    EXPECT_EQ(BatchPlan(10, 1, 1, {Shuffle::full, 0, lengths}).rows_of(7), BatchPlan(10, 1, 1).rows_of(7));
}

TEST(RowsByLength, SmallerMicroBatchesArePartsOfThePlanned) {
    const auto lengths = mixed_lengths(1'003);
    for (const Shuffle shuffle : {Shuffle::full, Shuffle::blocks}) {
        const BatchPlan planned(lengths->size(), 8, 42, {shuffle, 200, lengths});
        for (const std::uint32_t size : {4, 2, 1}) {
            const BatchPlan cut(lengths->size(), size, 42, {shuffle, 200, lengths, 8});
            for (std::uint64_t number = 0; number < 400; ++number) {  // past the end of an epoch
                Rows rows;
                for (std::uint64_t part = 0; part < 8 / size; ++part) {
                    const Rows more = cut.rows_of(number * (8 / size) + part);
                    rows.insert(rows.end(), more.begin(), more.end());
                }
                ASSERT_EQ(rows, planned.rows_of(number)) << number << " in parts of " << size;
            }
        }
    }
}

}  // namespace
}  // namespace distilld
