#include "pipeline/data/packed_dataset.hpp"

#include <gmock/gmock.h>

#include <array>

#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

using ::testing::ElementsAre;

class PackedDatasetTest : public ::testing::Test {
  protected:
    std::shared_ptr<const Dataset> documents(const std::string& lines) {
        DatasetOptions options;
        options.sequence_length = 6;
        options.packing = false;
        return std::shared_ptr<const Dataset>(
            load_jsonl_dataset(std::array{folder_.write("data.jsonl", lines)}, nullptr, options).value());
    }

    test::TemporaryFolder folder_;
};

std::vector<std::vector<std::uint32_t>> places(const TokenBatch& batch) {
    std::vector<std::vector<std::uint32_t>> places;
    for (const RowDocument& one : batch.documents) {
        places.push_back({one.row, one.begin, one.length, static_cast<std::uint32_t>(one.id)});
    }
    return places;
}

const std::string kLines = R"({"input_ids":[1,2,3,4]}
{"input_ids":[11,12,13,14,15,16,17]}
{"input_ids":[21,22,23],"labels":[-100,-100,23]}
{"input_ids":[31,32]}
)";
constexpr std::int32_t kWithoutLabel = kIgnoredLabel;

TEST_F(PackedDatasetTest, PiecesOfALongDocumentAreKeptApartAsDocumentsAre) {
    DatasetOptions options;
    options.sequence_length = 3;
    options.packing = false;
    options.overflow = Overflow::split;
    const auto packed = pack_documents(
        std::shared_ptr<const Dataset>(
            load_jsonl_dataset(std::array{folder_.write("data.jsonl", kLines)}, nullptr, options).value()),
        3);
    EXPECT_EQ(packed->token_count(), 12U);
    EXPECT_EQ(packed->tokens_read(), 12U);
    const TokenBatch batch = packed->batch(0, {1, 2});
    EXPECT_THAT(batch.input_ids, ElementsAre(11, 12, 13, 14, 15, 16));
    EXPECT_THAT(places(batch), ElementsAre(ElementsAre(0, 0, 3, 1), ElementsAre(1, 0, 3, 2)));
}

TEST_F(PackedDatasetTest, DocumentsLieSideBySideWithTheLabelsThatTheyHaveAlone) {
    const auto alone = documents(kLines);
    const auto packed = pack_documents(alone, 6);
    ASSERT_EQ(packed->row_count(), 2U);
    EXPECT_EQ(packed->token_count(), 12U);
    EXPECT_EQ(&packed->asked_about(), alone.get());
    EXPECT_EQ(packed->row_length(0), 6U);
    EXPECT_EQ(packed->target_tokens(0), 5U);
    const TokenBatch batch = packed->batch(9, {1, 0});
    EXPECT_EQ(batch.number, 9U);
    EXPECT_EQ(batch.columns, 6U);
    EXPECT_EQ(batch.target_tokens, 11U);
    EXPECT_THAT(batch.row_ids, ElementsAre(1, 0));
    EXPECT_THAT(batch.lengths, ElementsAre(6, 6));
    EXPECT_THAT(batch.input_ids, ElementsAre(11, 12, 13, 14, 15, 16, 1, 2, 3, 21, 22, 31));
    EXPECT_THAT(batch.labels, ElementsAre(12, 13, 14, 15, 16, 17, 2, 3, 4, kWithoutLabel, 23, 32));
    EXPECT_THAT(places(batch), ElementsAre(ElementsAre(0, 0, 6, 1), ElementsAre(1, 0, 3, 0), ElementsAre(1, 3, 2, 2),
                                           ElementsAre(1, 5, 1, 3)));
}

TEST_F(PackedDatasetTest, WhatIsEmptyInARowIsPadding) {
    const auto packed = pack_documents(documents(R"({"input_ids":[1,2,3,4,5,6]}
{"input_ids":[11,12,13]}
)"),
                                       6);
    ASSERT_EQ(packed->row_count(), 2U);
    const TokenBatch batch = packed->batch(0, {1, 0});
    EXPECT_THAT(batch.lengths, ElementsAre(2, 5));
    EXPECT_THAT(batch.labels, ElementsAre(12, 13, kWithoutLabel, kWithoutLabel, kWithoutLabel, kWithoutLabel, 2, 3, 4,
                                          5, 6, kWithoutLabel));
}

TEST_F(PackedDatasetTest, TheHashIsItsOwn) {
    const auto alone = documents(kLines);
    const auto packed = pack_documents(alone, 6);
    EXPECT_NE(packed->hash(), alone->hash());
    EXPECT_NE(pack_documents(alone, 7)->hash(), packed->hash()) << "other rows";
    EXPECT_EQ(pack_documents(documents(kLines), 6)->hash(), packed->hash());
}

TEST_F(PackedDatasetTest, OfSeveralTeachersEachHasRowsOfItsOwn) {
    DatasetOptions options;
    options.sequence_length = 6;
    options.packing = false;
    options.teachers = {"a", "b"};
    const std::array files{folder_.write("mixed.jsonl", R"({"input_ids":[1,2,3],"teacher":"b"}
{"input_ids":[11,12,13],"teacher":"a"}
{"input_ids":[21,22,23],"teacher":"b"}
{"input_ids":[31,32,33,34,35,36],"teacher":"a"}
)")};
    const auto mixed = load_mixed_dataset(files, nullptr, options).value();
    const auto packed = pack_documents(*mixed, 6);
    ASSERT_EQ(packed->row_count(), 3U);
    EXPECT_EQ(packed->place_of(0).part, 1U) << "whose first document stands first";
    EXPECT_EQ(&packed->parts()[1].rows->asked_about(), mixed->parts()[1].rows.get());
    const TokenBatch batch = packed->batch(0, {2, 0});
    EXPECT_EQ(batch.columns, 6U);
    EXPECT_THAT(batch.input_ids, ElementsAre(31, 32, 33, 34, 35, 0, 1, 2, 21, 22, 0, 0));
    EXPECT_THAT(batch.lengths, ElementsAre(5, 4));
    EXPECT_THAT(places(batch), ElementsAre(ElementsAre(0, 0, 5, 1), ElementsAre(1, 0, 2, 0), ElementsAre(1, 2, 2, 1)));
}

}  // namespace
}  // namespace distilld
