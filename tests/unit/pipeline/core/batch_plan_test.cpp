#include "pipeline/core/batch_plan.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <numeric>

namespace distilld {
namespace {

using ::testing::ElementsAre;
using Rows = std::vector<std::uint64_t>;

Rows positions(const BatchPlan& plan, std::uint64_t first_batch, std::uint64_t batches) {
    Rows rows;
    for (std::uint64_t number = first_batch; number < first_batch + batches; ++number) {
        const Rows batch = plan.rows_of(number);
        rows.insert(rows.end(), batch.begin(), batch.end());
    }
    return rows;
}

// Computed with an independent implementation of SplitMix64 and Fisher–Yates. Checkpoints and stored teacher outputs
// depend on these numbers: they may never change.
TEST(BatchPlan, IsTheSameForever) {
    const BatchPlan ten(10, 5, 42);
    EXPECT_THAT(ten.rows_of(0), ElementsAre(6, 5, 8, 9, 0));
    EXPECT_THAT(ten.rows_of(1), ElementsAre(2, 7, 1, 4, 3));
    EXPECT_THAT(ten.rows_of(2), ElementsAre(8, 7, 6, 1, 9));
    EXPECT_THAT(ten.rows_of(3), ElementsAre(4, 2, 5, 0, 3));
    EXPECT_THAT(ten.rows_of(4), ElementsAre(8, 4, 0, 3, 2));
    const BatchPlan seven(7, 7, 0);
    EXPECT_THAT(seven.rows_of(0), ElementsAre(4, 6, 5, 2, 1, 0, 3));
    EXPECT_THAT(seven.rows_of(1), ElementsAre(0, 1, 5, 3, 2, 6, 4));
    EXPECT_THAT(BatchPlan(1000, 8, 42).rows_of(0), ElementsAre(587, 649, 450, 496, 669, 904, 593, 845));
    EXPECT_THAT(BatchPlan(1000, 8, 1234567890123456789).rows_of(5 * 125),
                ElementsAre(840, 329, 427, 14, 726, 819, 497, 564));
}

TEST(BatchPlan, VisitsEachRowOnceAnEpoch) {
    for (const std::uint64_t rows : {1, 2, 3, 7, 64, 1000}) {
        for (const std::uint32_t batch : {1, 3, 8}) {
            const BatchPlan plan(rows, batch, 7);
            constexpr std::uint64_t kEpochs = 4;
            const Rows visited = positions(plan, 0, (kEpochs * rows + batch - 1) / batch);
            for (std::uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
                Rows of_epoch(visited.begin() + static_cast<std::ptrdiff_t>(epoch * rows),
                              visited.begin() + static_cast<std::ptrdiff_t>((epoch + 1) * rows));
                std::sort(of_epoch.begin(), of_epoch.end());
                Rows expected(rows);
                std::iota(expected.begin(), expected.end(), std::uint64_t{0});
                EXPECT_EQ(of_epoch, expected) << rows << " rows, batch " << batch << ", epoch " << epoch;
            }
        }
    }
}

// Batches of another size cut the same sequence of rows elsewhere.
TEST(BatchPlan, BatchesRunOnAcrossEpochs) {
    const Rows one_by_one = positions(BatchPlan(10, 1, 42), 0, 60);
    for (const std::uint32_t batch : {2, 3, 4, 15, 30}) {
        const BatchPlan plan(10, batch, 42);
        EXPECT_EQ(positions(plan, 0, 60 / batch), one_by_one) << "batch " << batch;
    }
    const BatchPlan plan(10, 4, 42);
    EXPECT_THAT(plan.rows_of(2), ElementsAre(4, 3, 8, 7)) << "two rows of epoch 0, two of epoch 1";
    EXPECT_EQ(BatchPlan(3, 8, 1).rows_of(0).size(), 8U) << "one batch may span several epochs";
}

TEST(BatchPlan, DoesNotDependOnTheOrderOfTheCalls) {
    const BatchPlan forward(13, 4, 99);
    std::map<std::uint64_t, Rows> expected;
    for (std::uint64_t number = 0; number < 50; ++number) {
        expected[number] = forward.rows_of(number);
    }
    const BatchPlan scattered(13, 4, 99);
    for (std::uint64_t i = 0; i < 500; ++i) {
        const std::uint64_t number = i * 29 % 50;
        EXPECT_EQ(scattered.rows_of(number), expected[number]) << number;
    }
    for (std::uint64_t number = 50; number-- > 0;) {
        EXPECT_EQ(BatchPlan(13, 4, 99).rows_of(number), expected[number]) << number;
        EXPECT_EQ(forward.rows_of(number), expected[number]) << number;
    }
}

TEST(BatchPlan, SeedsAndEpochsOrderDifferently) {
    const Rows base = positions(BatchPlan(100, 100, 1), 0, 1);
    EXPECT_NE(positions(BatchPlan(100, 100, 1), 1, 1), base);
    EXPECT_NE(positions(BatchPlan(100, 100, 2), 0, 1), base);
    Rows sorted = base;
    std::sort(sorted.begin(), sorted.end());
    EXPECT_NE(sorted, base);
}

// Each row at each place about equally often: 24 000 permutations of four rows, 1000 expected of each of the 24.
TEST(BatchPlan, FavoursNoPermutation) {
    const BatchPlan plan(4, 4, 5);
    std::map<Rows, int> seen;
    for (std::uint64_t epoch = 0; epoch < 24'000; ++epoch) {
        ++seen[plan.rows_of(epoch)];
    }
    EXPECT_EQ(seen.size(), 24U);
    double chi_squared = 0;
    for (const auto& [order, count] : seen) {
        chi_squared += (count - 1000.0) * (count - 1000.0) / 1000.0;
    }
    EXPECT_LT(chi_squared, 49.7) << "23 degrees of freedom: 49.7 is exceeded once in a thousand";
}

// Computed with an independent implementation in Python. Checkpoints depend on these numbers: they may never change.
TEST(BatchPlan, ShufflesEachBlockByItself) {
    const RowOrder blocks{Shuffle::blocks, 4};
    const BatchPlan plan(10, 10, 42, blocks);
    EXPECT_THAT(plan.rows_of(0), ElementsAre(1, 2, 3, 0, 7, 6, 4, 5, 9, 8));
    EXPECT_THAT(plan.rows_of(1), ElementsAre(3, 1, 0, 2, 5, 4, 6, 7, 8, 9));
    for (std::uint64_t epoch = 0; epoch < 20; ++epoch) {
        const Rows rows = plan.rows_of(epoch);
        for (std::size_t i = 0; i < rows.size(); ++i) {
            EXPECT_EQ(rows[i] / 4, i / 4) << "row " << rows[i] << " has left its block in epoch " << epoch;
        }
        const Rows longer = BatchPlan(12, 12, 42, blocks).rows_of(epoch);
        EXPECT_TRUE(std::equal(rows.begin(), rows.begin() + 8, longer.begin())) << "a block's order is its own";
        Rows sorted = rows;
        std::sort(sorted.begin(), sorted.end());
        EXPECT_EQ(std::adjacent_find(sorted.begin(), sorted.end()), sorted.end());
    }
    EXPECT_EQ(positions(BatchPlan(10, 3, 42, blocks), 0, 10), positions(plan, 0, 3));
}

TEST(BatchPlan, OneBlockOfAllRowsIsStillShuffledAndNoBlockIsNot) {
    EXPECT_FALSE(std::ranges::is_sorted(BatchPlan(100, 100, 1, {Shuffle::blocks, 100}).rows_of(0)));
    const BatchPlan off(5, 2, 42, {Shuffle::off, 4});
    EXPECT_THAT(positions(off, 0, 5), ElementsAre(0, 1, 2, 3, 4, 0, 1, 2, 3, 4));
    EXPECT_THAT(positions(BatchPlan(3, 3, 7, {Shuffle::blocks, 1}), 0, 2), ElementsAre(0, 1, 2, 0, 1, 2));
}

TEST(BatchPlan, OnceGoesThroughTheRowsThatItIsGiven) {
    const BatchPlan plan = BatchPlan::once({4, 9, 2, 7, 5}, 2);
    EXPECT_THAT(plan.rows_of(0), ElementsAre(4, 9));
    EXPECT_THAT(plan.rows_of(2), ElementsAre(5));
    EXPECT_THAT(plan.rows_of(3), ElementsAre());
}

TEST(BatchPlan, FarNumbersWork) {
    const BatchPlan plan(1000, 1, 3);
    const std::uint64_t far = 1ULL << 40;
    EXPECT_LT(plan.rows_of(far)[0], 1000U);
}

RowOrder ending_epochs() {
    RowOrder order;
    order.ends_epochs = true;
    return order;
}

TEST(BatchPlan, AnEpochMayEndWithASmallerMicroBatchAndStep) {
    for (const std::uint64_t rows : {1, 2, 7, 64, 454}) {
        for (const std::uint32_t batch : {1, 3, 8, 100}) {
            for (const std::uint32_t micro_batches : {1, 2, 5}) {
                const BatchPlan plan(rows, batch, 7, ending_epochs());
                const StepPlan steps = plan.steps_of(micro_batches);
                const std::uint64_t of_step = std::uint64_t{batch} * micro_batches;
                const std::uint64_t of_epoch = (rows + of_step - 1) / of_step;
                EXPECT_EQ(steps_of_epochs(rows, of_step, 3), 3 * of_epoch);
                for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
                    Rows visited;
                    for (std::uint64_t step = epoch * of_epoch; step < (epoch + 1) * of_epoch; ++step) {
                        Rows of_this;
                        for (std::uint64_t n = steps.first_of(step); n < steps.first_of(step + 1); ++n) {
                            EXPECT_EQ(steps.step_of(n), step);
                            const Rows more = plan.rows_of(n);
                            EXPECT_FALSE(more.empty());
                            of_this.insert(of_this.end(), more.begin(), more.end());
                        }
                        EXPECT_EQ(of_this.size(), std::min(of_step, rows - visited.size()));
                        visited.insert(visited.end(), of_this.begin(), of_this.end());
                    }
                    // In the order in which the same epoch is visited without.
                    EXPECT_EQ(visited, positions(BatchPlan(rows, 1, 7), epoch * rows, rows));
                }
            }
        }
    }
}

TEST(BatchPlan, SlicesOfAllRanksMakeUpEachStep) {
    for (const RowOrder& order : {RowOrder(), ending_epochs()}) {
        for (const std::uint64_t rows : {3, 7, 12, 64}) {
            for (const std::uint32_t micro_batches : {1, 2, 5, 8}) {
                for (const std::uint32_t ranks : {1, 2, 3, 5}) {
                    if (ranks > micro_batches) {
                        continue;
                    }
                    const BatchPlan plan(rows, 1, 7, order);
                    const StepPlan whole = plan.steps_of(micro_batches);
                    std::vector<StepPlan> slices;
                    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
                        slices.push_back(plan.steps_of(micro_batches, slice_of_rank(micro_batches, rank, ranks)));
                    }
                    for (std::uint64_t step = 0; step < 30; ++step) {
                        std::uint64_t index = 0;
                        for (const StepPlan& slice : slices) {
                            for (std::uint64_t n = slice.first_of(step); n < slice.first_of(step + 1); ++n) {
                                EXPECT_EQ(slice.step_of(n), step);
                                EXPECT_EQ(slice.index_of(n), index++);
                            }
                        }
                        EXPECT_EQ(index, whole.first_of(step + 1) - whole.first_of(step));
                    }
                }
            }
        }
    }
}

TEST(BatchPlan, AnEpochMayHaveNothingForARank) {
    const BatchPlan plan(3, 1, 7, ending_epochs());
    EXPECT_TRUE(plan.steps_of(8, slice_of_rank(8, 0, 2)).has_any());
    EXPECT_FALSE(plan.steps_of(8, slice_of_rank(8, 1, 2)).has_any());
    EXPECT_TRUE(BatchPlan(3, 1, 7).steps_of(8, slice_of_rank(8, 1, 2)).has_any());
}

TEST(BatchPlan, StepsThatRunOnAreOfSoManyMicroBatchesEach) {
    const StepPlan steps = BatchPlan(10, 4, 42).steps_of(3);
    EXPECT_EQ(steps.first_of(5), 15U);
    EXPECT_EQ(steps.step_of(14), 4U);
}

TEST(StepsOfEpochs, CountsTheStepsThatEndWithAnEpoch) {
    EXPECT_EQ(steps_of_epochs(100, 10, 1), 10U);
    EXPECT_EQ(steps_of_epochs(454, 100, 1), 5U);
    EXPECT_EQ(steps_of_epochs(454, 100, 2), 10U);
    EXPECT_EQ(steps_of_epochs(454, 100, 0.5), 3U) << "whole steps";
    EXPECT_EQ(steps_of_epochs(100, 1, 0.29), 29U);
    EXPECT_EQ(steps_of_epochs(100, 1, 0.07), 7U);
    EXPECT_EQ(steps_of_epochs(3, 64, 1), 1U);
    EXPECT_EQ(steps_of_epochs(3, 64, 64), 64U);
}

TEST(StepsOfEpochs, ThoseOfEarlierVersionsRanOn) {
    EXPECT_EQ(steps_of_epochs(100, 10, 1.0, false), 10U);
    EXPECT_EQ(steps_of_epochs(109, 10, 1.0, false), 10U);
    EXPECT_EQ(steps_of_epochs(100, 10, 2.5, false), 25U);
    EXPECT_EQ(steps_of_epochs(100, 10, 0.5, false), 5U);
    EXPECT_EQ(steps_of_epochs(100, 1, 0.29, false), 29U);
    EXPECT_EQ(steps_of_epochs(3, 64, 1.0, false), 1U) << "at least one";
    EXPECT_EQ(steps_of_epochs(3, 64, 64.0, false), 3U);
}

}  // namespace
}  // namespace distilld
