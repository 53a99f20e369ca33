#include "pipeline/data/mixed_dataset.hpp"

#include <gmock/gmock.h>

#include <numeric>

#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class MixedDatasetTest : public ::testing::Test {
  protected:
    Result<std::shared_ptr<const MixedDataset>> load(const std::string& lines, std::vector<std::string> teachers,
                                                     bool packing) {
        DatasetOptions options;
        options.sequence_length = 3;
        options.packing = packing;
        options.teachers = std::move(teachers);
        return load_mixed_dataset(std::vector<std::filesystem::path>{folder_.write("mixed.jsonl", lines)},
                                  tokenizer_.get(), options);
    }

    std::shared_ptr<const Dataset> load_one(const std::string& lines, bool packing) {
        DatasetOptions options;
        options.sequence_length = 3;
        options.packing = packing;
        return std::shared_ptr<const Dataset>(
            load_jsonl_dataset(std::vector<std::filesystem::path>{folder_.write("one.jsonl", lines)}, tokenizer_.get(),
                               options)
                .value());
    }

    static TokenBatch all_rows(const Dataset& dataset) {
        std::vector<std::uint64_t> rows(dataset.row_count());
        std::iota(rows.begin(), rows.end(), std::uint64_t{0});
        return dataset.batch(5, rows);
    }

    std::string refusal(const std::string& lines, std::vector<std::string> teachers) {
        const auto loaded = load(lines, std::move(teachers), false);
        return loaded ? "(was accepted)" : loaded.error().message;
    }

    test::TemporaryFolder folder_;
    std::unique_ptr<Tokenizer> tokenizer_ = make_byte_tokenizer();
};

const std::string kA1 = R"({"input_ids":[1,2,3,4],"teacher":"a"})"
                        "\n";
const std::string kB1 = R"({"input_ids":[11,12,13],"labels":[-100,12,13],"teacher":"b"})"
                        "\n";
const std::string kA2 = R"({"input_ids":[5,6,7,8,9],"teacher":"a"})"
                        "\n";
const std::string kB2 = R"({"text":"xyz","teacher":"b"})"
                        "\n";

TEST_F(MixedDatasetTest, RowsStandInTheOrderOfTheFileAndBelongToTheirTeacher) {
    const auto mixed = load(kA1 + kB1 + kA2 + kB2, {"a", "b"}, false).value();
    ASSERT_EQ(mixed->row_count(), 4U);
    std::vector<std::pair<std::uint32_t, std::uint64_t>> places;
    for (std::uint64_t row = 0; row < 4; ++row) {
        places.emplace_back(mixed->place_of(row).part, mixed->place_of(row).row);
    }
    EXPECT_THAT(places, ElementsAre(std::pair(0U, 0U), std::pair(1U, 0U), std::pair(0U, 1U), std::pair(1U, 1U)));
    const TokenBatch batch = all_rows(*mixed);
    EXPECT_THAT(batch.input_ids, ElementsAre(1, 2, 3, 11, 12, 0, 5, 6, 7, 120, 121, 0));
    EXPECT_THAT(batch.labels, ElementsAre(2, 3, 4, 12, 13, kIgnoredLabel, 6, 7, 8, 121, 122, kIgnoredLabel));
    EXPECT_THAT(batch.lengths, ElementsAre(3, 2, 3, 2));
    EXPECT_THAT(batch.row_ids, ElementsAre(0, 1, 2, 3));
    EXPECT_EQ(batch.number, 5U);
    EXPECT_EQ(batch.target_tokens, 10U);
    EXPECT_EQ(mixed->target_tokens(1), 2U);
    EXPECT_EQ(mixed->token_count(), 10U);
    EXPECT_TRUE(mixed->has_text());
}

// What makes a store that was generated for one teacher's rows fit.
TEST_F(MixedDatasetTest, APartIsTheDatasetOfItsDocumentsAlone) {
    for (const bool packing : {false, true}) {
        const auto mixed = load(kA1 + kB1 + kA2 + kB2, {"a", "b"}, packing).value();
        const auto a = load_one(kA1 + kA2, packing);
        const auto b = load_one(kB1 + kB2, packing);
        EXPECT_EQ(mixed->parts()[0].rows->hash(), a->hash());
        EXPECT_EQ(mixed->parts()[1].rows->hash(), b->hash());
        EXPECT_EQ(all_rows(*mixed->parts()[1].rows).input_ids, all_rows(*b).input_ids);
        EXPECT_EQ(mixed->row_count(), a->row_count() + b->row_count());
    }
}

TEST_F(MixedDatasetTest, PackedRowsHoldDocumentsOfOneTeacherAndStandWhereTheyBegin) {
    const auto mixed = load(kA1 + kB1 + kA2 + kB1, {"a", "b"}, true).value();
    // a: 1 … 9 in rows of three, the third of which begins in its second document; b: 11 12 13 11 12 13.
    EXPECT_THAT(all_rows(*mixed).input_ids, ElementsAre(1, 2, 3, 4, 5, 6, 11, 12, 13, 7, 8, 0, 11, 12, 0));
}

TEST_F(MixedDatasetTest, TheHashIsOverNamesAndOrder) {
    const auto hash = [this](const std::string& lines, const std::vector<std::string>& teachers) {
        return load(lines, teachers, false).value()->hash();
    };
    const std::string first = hash(kA1 + kB1, {"a", "b"});
    EXPECT_EQ(first, hash(kA1 + kB1, {"a", "b"}));
    EXPECT_NE(first, hash(kB1 + kA1, {"a", "b"}));
    const std::string swapped = R"({"input_ids":[1,2,3,4],"teacher":"b"})"
                                "\n"
                                R"({"input_ids":[11,12,13],"labels":[-100,12,13],"teacher":"a"})"
                                "\n";
    EXPECT_NE(first, hash(swapped, {"a", "b"}));
}

TEST_F(MixedDatasetTest, WhatNamesNoTeacherIsTheDefaults) {
    const std::string plain = "{\"input_ids\":[1,2]}\n{\"input_ids\":[1,2],\"teacher\":null}\n";
    const auto mixed = load(plain + kA1, {"a", "default"}, false).value();
    EXPECT_EQ(mixed->parts()[1].rows->row_count(), 2U);
    EXPECT_THAT(refusal(kA1 + plain, {"a"}),
                HasSubstr("mixed.jsonl:2: names no teacher, and of one called \"default\" /teachers knows nothing; it "
                          "has a"));
}

TEST_F(MixedDatasetTest, WhatNobodyKnowsIsRefusedWithItsLine) {
    EXPECT_THAT(refusal(kA1 + "\n" + kB1, {"a", "c"}),
                HasSubstr("mixed.jsonl:3: names the teacher \"b\", of which /teachers knows nothing; it has a, c"));
    EXPECT_THAT(refusal("{\"input_ids\":[1,2],\"teacher\":7}\n", {"a"}),
                HasSubstr("mixed.jsonl:1: \"teacher\" is a number, expected a name"));
    EXPECT_THAT(refusal(kA1, {"a", "b"}), HasSubstr("mixed.jsonl: holds no row to learn from of the teacher b"));
}

TEST_F(MixedDatasetTest, OneTeacherHasAllRowsWhateverTheyName) {
    const auto named = load_one(kA1 + kB1, false);
    EXPECT_TRUE(named->names_teachers());
    const auto plain =
        load_one("{\"input_ids\":[1,2,3,4]}\n{\"input_ids\":[11,12,13],\"labels\":[-100,12,13]}\n", false);
    EXPECT_FALSE(plain->names_teachers());
    EXPECT_EQ(named->hash(), plain->hash());
}

}  // namespace
}  // namespace distilld
