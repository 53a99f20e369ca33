#include "pipeline/data/teacher_tokenizer.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "pipeline/core/micro_batch.hpp"
#include "pipeline/data/dataset.hpp"
#include "pipeline/data/teacher_document.hpp"
#include "pipeline/data/token_cache.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

constexpr std::int32_t kNoLabel = kIgnoredLabel;

/// ab and cd are tokens; ends texts with <|endoftext|>, 6.
constexpr const char* kPairs = R"({"added_tokens": [{"id": 6, "content": "<|endoftext|>", "special": true}],
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "d": 3, "ab": 4, "cd": 5},
    "merges": ["a b", "c d"]}})";

TokenizerChoice bytes() {
    TokenizerChoice choice;
    choice.tokenizer = make_byte_tokenizer();
    return choice;
}

class TeacherTokenizerTest : public testing::Test {
  protected:
    std::shared_ptr<TeacherTokenizer> pairs() {
        folder_.write("tokenizer.json", kPairs);
        return load_teacher_tokenizer(folder_.path(), bytes()).value();
    }

    DatasetOptions options(const TeacherTokenizer& teacher) {
        DatasetOptions made;
        made.sequence_length = 8;
        made.packing = false;
        made.teacher_tokenizer = &teacher;
        return made;
    }

    Result<std::unique_ptr<Dataset>> load(const std::string& lines, const DatasetOptions& how) {
        folder_.write("data.jsonl", lines);
        return load_again(how);
    }

    Result<std::unique_ptr<Dataset>> load_again(const DatasetOptions& how) {
        const std::vector<std::filesystem::path> files{folder_.path() / "data.jsonl"};
        return load_jsonl_dataset(files, student_.get(), how);
    }

    test::TemporaryFolder folder_;
    std::unique_ptr<Tokenizer> student_ = make_byte_tokenizer();
};

TEST(TokenBytes, AreWhatATokenStandsForWithinAText) {
    const auto bytes_of = make_byte_tokenizer();
    EXPECT_EQ(bytes_of->token_bytes('a'), "a");
    EXPECT_EQ(bytes_of->token_bytes(256), "<|endoftext|>");
    EXPECT_EQ(bytes_of->token_bytes(257), "");
    EXPECT_EQ(bytes_of->token_bytes(-1), "");
    const test::TemporaryFolder folder;
    folder.write("tokenizer.json", R"({"added_tokens": [{"id": 5, "content": "<s>", "special": true}],
        "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"},
        "model": {"type": "BPE", "byte_fallback": true, "merges": [],
                  "vocab": {"▁": 0, "▁the": 1, "a▁b▁": 2, "<0xE9>": 3, "x": 4}}})");
    const auto spaced = load_tokenizer(folder.path()).value();
    EXPECT_EQ(spaced->token_bytes(0), " ");
    EXPECT_EQ(spaced->token_bytes(1), " the");
    EXPECT_EQ(spaced->token_bytes(2), "a b ");
    EXPECT_EQ(spaced->token_bytes(3), "\xE9");
    EXPECT_EQ(spaced->token_bytes(4), "x");
    EXPECT_EQ(spaced->token_bytes(5), "<s>");
    EXPECT_EQ(spaced->token_bytes(6), "");
}

TEST_F(TeacherTokenizerTest, RelatesItsTokensToTheStudents) {
    const auto teacher = pairs();
    EXPECT_EQ(teacher->alignment->student_id(0), 'a');
    EXPECT_EQ(teacher->alignment->student_id(4), kNoPartner);
    EXPECT_EQ(teacher->alignment->student_id(6), 256);
    EXPECT_THAT(teacher->alignment->partners(std::vector<std::int32_t>{'a', 'b', 'c'}, std::vector<std::int32_t>{4, 2}),
                ElementsAre(-1, 0, 1));
}

TEST_F(TeacherTokenizerTest, ErrorsNameTheFieldAndWhatToDo) {
    const auto refusal = [this](const TokenizerChoice& student) {
        return load_teacher_tokenizer(folder_.path(), student).error().message;
    };
    EXPECT_THAT(refusal(bytes()), AllOf(StartsWith("/teacher/tokenizer: "), HasSubstr("not a folder with a tokenizer"),
                                        HasSubstr("give it a folder with a tokenizer.json of type BPE")));
    folder_.write("tokenizer.json", R"({"model": {"type": "Unigram", "vocab": []}})");
    EXPECT_THAT(refusal(bytes()), AllOf(StartsWith("/teacher/tokenizer: "), HasSubstr("Unigram")));
    folder_.write("tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"xx": 0}, "merges": []}})");
    EXPECT_THAT(refusal(bytes()), HasSubstr("no token of"));
    folder_.write("tokenizer.json", kPairs);
    TokenizerChoice none;
    none.refusal = "there is none";
    EXPECT_THAT(refusal(none), HasSubstr("needs a tokenizer of the student, too: there is none"));
}

TEST_F(TeacherTokenizerTest, PositionsWithoutAPartnerCarryNoLoss) {
    const auto teacher = pairs();
    const std::string lines = R"({"text": "abcda"})"
                              "\n"
                              R"({"prompt": "ab", "completion": "cdd"})"
                              "\n";
    const auto dataset = load(lines, options(*teacher)).value();
    const TokenBatch own = dataset->batch(0, {0, 1});
    EXPECT_THAT(own.input_ids, ElementsAre('a', 'b', 'c', 'd', 0, 'a', 'b', 'c', 'd', 'd'));
    EXPECT_THAT(own.labels, ElementsAre(kNoLabel, 'c', kNoLabel, 'a', kNoLabel, kNoLabel, 'c', kNoLabel, 'd', 256));
    const TokenBatch read = dataset->teacher_documents()->batch(0, {0, 1});
    EXPECT_THAT(read.input_ids, ElementsAre(4, 5, 0, 4, 5, 3));
    EXPECT_THAT(read.labels, ElementsAre(5, 0, kNoLabel, 5, 3, 6));
    DatasetOptions keeping = options(*teacher);
    keeping.keeps_labels = true;
    const auto kept = load(lines, keeping).value();
    EXPECT_THAT(kept->batch(0, {0}).labels, ElementsAre('b', 'c', 'd', 'a'));
    EXPECT_EQ(kept->asked_about().hash(), dataset->asked_about().hash()) << "the teacher is asked the same";
}

TEST_F(TeacherTokenizerTest, BothNeedALabelForTheNextToken) {
    ASSERT_TRUE(write_byte_tokenizer(folder_ / "bytes"));
    folder_.write("tokenizer.json", kPairs);
    TokenizerChoice student;
    student.tokenizer = load_tokenizer(folder_.path()).value();
    const auto teacher = load_teacher_tokenizer(folder_ / "bytes", student).value();
    student_ = std::move(student.tokenizer);
    const auto dataset = load(R"({"prompt": "ca", "completion": "bd"})", options(*teacher)).value();
    EXPECT_THAT(dataset->batch(0, {0}).input_ids, ElementsAre(2, 4, 3));
    EXPECT_THAT(dataset->batch(0, {0}).labels, ElementsAre(kNoLabel, 3, 6)) << "for the teacher, a is of the prompt";
    EXPECT_THAT(dataset->teacher_documents()->batch(0, {0}).labels, ElementsAre(kNoLabel, 'b', 'd', 256));
}

TEST_F(TeacherTokenizerTest, BothAreCutToTheirRows) {
    const auto teacher = pairs();
    DatasetOptions how = options(*teacher);
    how.overflow = Overflow::truncate;
    how.sequence_length = 5;
    how.teacher_sequence_length = 2;
    const auto dataset = load(R"({"text": "abcdabcd"})"
                              "\n"
                              R"({"text": "ab"})"
                              "\n",
                              how)
                             .value();
    ASSERT_EQ(dataset->row_count(), 1U) << "of the second, the teacher has no position";
    EXPECT_THAT(dataset->batch(0, {0}).labels, ElementsAre(kNoLabel, 'c', kNoLabel, 'a', kNoLabel));
    EXPECT_THAT(dataset->teacher_documents()->batch(0, {0}).input_ids, ElementsAre(4, 5));
    EXPECT_EQ(dataset->teacher_documents()->row_count(), 1U);
    how.overflow = Overflow::split;
    EXPECT_THAT(load(R"({"text": "abcdabcd"})", how).error().message, HasSubstr("cannot be split into rows"));
}

TEST_F(TeacherTokenizerTest, WhatIsNotATextIsNamed) {
    const auto teacher = pairs();
    EXPECT_THAT(load("{\"text\": \"ab\"}\n{\"input_ids\": [1, 2]}", options(*teacher)).error().message,
                HasSubstr("data.jsonl:2: \"input_ids\" cannot be used with /teacher/tokenizer"));
    EXPECT_THAT(load(R"({"prompt": "a", "completion": "b", "teacher_prompt": "c"})", options(*teacher)).error().message,
                HasSubstr("data.jsonl:1: \"teacher_prompt\" cannot be used with /teacher/tokenizer"));
}

TEST_F(TeacherTokenizerTest, TheTokenCacheKeepsBothKindsOfLabelsApart) {
    const auto teacher = pairs();
    std::vector<std::string> infos;
    const auto through = [&](bool keeps) {
        TokenCache cache(
            folder_.path() / "cache", "reader", [&](const std::string& text) { infos.push_back(text); },
            [](const std::string& text) { FAIL() << text; }, 0);
        DatasetOptions how = options(*teacher);
        how.cache = &cache;
        how.keeps_labels = keeps;
        return load_again(how).value();
    };
    folder_.write("data.jsonl", R"({"text": "abcda"})");
    for (const bool keeps : {false, true, false, true}) {
        const auto dataset = through(keeps);
        EXPECT_EQ(dataset->batch(0, {0}).labels.front(), keeps ? 'b' : kNoLabel);
        EXPECT_EQ(dataset->teacher_documents()->row_count(), 1U);
    }
    const auto has_been_kept = [](const std::string& text) { return text.find("mapped") != std::string::npos; };
    EXPECT_EQ(std::ranges::count_if(infos, has_been_kept), 2) << testing::PrintToString(infos);
}

}  // namespace
}  // namespace distilld
