#include "pipeline/graph/batch_source.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

/// Row r is the document [r, 100, 100 …] of r + 2 tokens, so that a row's content names it.
std::shared_ptr<const Dataset> rows_that_name_themselves(std::uint64_t rows) {
    const test::TemporaryFolder folder;
    std::string lines;
    for (std::uint64_t row = 0; row < rows; ++row) {
        lines += "{\"input_ids\":[" + std::to_string(row);
        for (std::uint64_t token = 0; token <= row; ++token) {
            lines += ",100";
        }
        lines += "]}\n";
    }
    DatasetOptions options;
    options.sequence_length = 32;
    options.packing = false;
    return std::shared_ptr<const Dataset>(
        load_jsonl_dataset(std::vector<std::filesystem::path>{folder.write("rows.jsonl", lines)}, nullptr, options)
            .value());
}

TEST(BatchSource, ABatchNamesTheRowsThatThePlanGaveIt) {
    constexpr std::uint64_t kRows = 7;
    constexpr std::uint32_t kBatchSize = 3;
    const BatchPlan plan(kRows, kBatchSize, 42);
    BatchSource source(rows_that_name_themselves(kRows), plan, 2);
    for (std::uint64_t n = 0; n < 10; ++n) {  // past the end of the first epoch, within a batch
        const PlannedBatch planned = source.batch(n);
        EXPECT_EQ(planned.tokens->number, n);
        EXPECT_EQ(planned.tokens->row_ids, plan.rows_of(n));
        ASSERT_EQ(planned.tokens->row_ids.size(), kBatchSize);
        for (std::uint32_t b = 0; b < kBatchSize; ++b) {
            const std::uint64_t row = planned.tokens->row_ids[b];
            EXPECT_EQ(planned.tokens->input_ids[b * planned.tokens->columns], static_cast<std::int32_t>(row));
            EXPECT_EQ(planned.tokens->lengths[b], static_cast<std::int32_t>(row + 1));
        }
    }
}

TEST(BatchSource, AStepHasTheTargetTokensOfAllItsMicroBatches) {
    constexpr std::uint32_t kMicroBatches = 4;
    BatchSource source(rows_that_name_themselves(10), BatchPlan(10, 3, 1), kMicroBatches);
    for (const std::uint64_t step : {0, 5, 2}) {
        std::uint64_t together = 0;
        std::vector<std::uint64_t> of_step;
        for (std::uint64_t n = step * kMicroBatches; n < (step + 1) * kMicroBatches; ++n) {
            const PlannedBatch planned = source.batch(n);
            together += planned.tokens->target_tokens;
            of_step.push_back(planned.step_target_tokens);
            EXPECT_EQ(planned.index, n % kMicroBatches);
        }
        EXPECT_EQ(of_step, std::vector<std::uint64_t>(kMicroBatches, together));
    }
}

TEST(BatchSource, TheLastStepOfAnEpochHasTheTokensOfItsOwnRows) {
    BatchSource source(rows_that_name_themselves(7), BatchPlan(7, 2, 1, {.ends_epochs = true}), 3);
    const std::uint64_t first = source.batch(0).step_target_tokens;
    const PlannedBatch last = source.batch(3);
    EXPECT_EQ(last.tokens->rows, 1U);
    EXPECT_EQ(last.step_target_tokens, last.tokens->target_tokens);
    EXPECT_EQ(first + last.step_target_tokens, 1U + 2 + 3 + 4 + 5 + 6 + 7);
    EXPECT_EQ(last.index, 0U);
    EXPECT_EQ(source.batch(4).tokens->rows, 2U) << "the next epoch";
    EXPECT_EQ(source.batch(6).index, 2U);
}

}  // namespace
}  // namespace distilld
