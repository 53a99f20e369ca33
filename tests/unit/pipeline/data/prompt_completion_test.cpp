#include "pipeline/data/prompt_completion.hpp"

#include <gmock/gmock.h>

#include "pipeline/core/micro_batch.hpp"
#include "pipeline/data/teacher_document.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

using ::testing::ElementsAre;

constexpr std::int32_t kNone = kIgnoredLabel;

// tests/e2e/test_prompt_completion.py holds tokenizers of several kinds against TRL's way of doing it.
TEST(PromptCompletion, TheCompletionAndItsEndAreLearnt) {
    const auto tokenizer = make_byte_tokenizer();
    Document document;
    encode_prompt_completion(*tokenizer, "ab", "cd", true, document);
    EXPECT_THAT(document.ids, ElementsAre('a', 'b', 'c', 'd', 256));
    EXPECT_THAT(document.labels, ElementsAre(kNone, kNone, 'c', 'd', 256));
    EXPECT_TRUE(document.has_labels);
    encode_prompt_completion(*tokenizer, "", "cd<|endoftext|>", true, document);
    EXPECT_THAT(document.ids, ElementsAre('c', 'd', 256)) << "it ends already";
    EXPECT_THAT(document.labels, ElementsAre('c', 'd', 256));
    encode_prompt_completion(*tokenizer, "ab", "cd", false, document);
    EXPECT_THAT(document.ids, ElementsAre('a', 'b', 'c', 'd', 256));
    EXPECT_FALSE(document.has_labels);
}

TEST(PromptCompletion, ATokenThatReachesIntoTheCompletionIsLearnt) {
    const test::TemporaryFolder folder;
    folder.write("tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "bc": 3},
        "merges": ["b c"]}})");
    const auto tokenizer = load_tokenizer(folder.path()).value();
    Document document;
    encode_prompt_completion(*tokenizer, "ab", "ca", true, document);
    EXPECT_THAT(document.ids, ElementsAre(0, 3, 0));
    EXPECT_THAT(document.labels, ElementsAre(kNone, 3, 0));
}

// Two rows of the data set tatsu-lab/alpaca, up to the answer in their column "text".
TEST(PromptCompletion, AnInstructionIsAPromptOfStanfordAlpaca) {
    EXPECT_EQ(alpaca_prompt("Give three tips for staying healthy.", ""),
              "Below is an instruction that describes a task. Write a response that appropriately completes the "
              "request.\n\n### Instruction:\nGive three tips for staying healthy.\n\n### Response:\n");
    EXPECT_EQ(
        alpaca_prompt("Identify the odd one out.", "Twitter, Instagram, Telegram"),
        "Below is an instruction that describes a task, paired with an input that provides further context. Write "
        "a response that appropriately completes the request.\n\n### Instruction:\nIdentify the odd one "
        "out.\n\n### Input:\nTwitter, Instagram, Telegram\n\n### Response:\n");
}

Document told(std::vector<std::int32_t> ids, std::vector<std::int32_t> teacher_ids) {
    Document document;
    document.ids = std::move(ids);
    document.teacher_ids = std::move(teacher_ids);
    return document;
}

TEST(TeacherDocument, TokensBeforeTheCommonEndAreNotLearnt) {
    Document document = told({1, 2, 3, 4}, {9, 9, 9, 3, 4});
    EXPECT_TRUE(align_with_teacher(document));
    EXPECT_THAT(document.labels, ElementsAre(kNone, kNone, 3, 4));
    document.labels = {kNone, 2, kNone, 4};
    EXPECT_TRUE(align_with_teacher(document)) << "labels that were ignored stay so";
    EXPECT_THAT(document.labels, ElementsAre(kNone, kNone, kNone, 4));
}

TEST(TeacherDocument, ATokenWithNoneBeforeItHasNoAnswer) {
    Document shorter = told({1, 2, 3}, {2, 3});
    EXPECT_TRUE(align_with_teacher(shorter));
    EXPECT_THAT(shorter.labels, ElementsAre(kNone, kNone, 3));
    Document longer = told({2, 3}, {1, 2, 3});
    EXPECT_TRUE(align_with_teacher(longer));
    EXPECT_THAT(longer.labels, ElementsAre(kNone, 3));
}

TEST(TeacherDocument, OneWithoutACommonEndIsRefusedUnlessThereWasNothingToLearn) {
    Document other = told({1, 2}, {1, 3});
    EXPECT_FALSE(align_with_teacher(other));
    Document nothing = told({1, 2}, {1, 3});
    nothing.labels = {1, kNone};
    nothing.has_labels = true;
    EXPECT_TRUE(align_with_teacher(nothing));
}

TEST(TeacherDocument, BothAreCutAtTheEnd) {
    Document document = told({1, 2, 3, 4}, {9, 9, 2, 3, 4});
    ASSERT_TRUE(align_with_teacher(document));
    const Document whole = teacher_document(document, 0);
    EXPECT_THAT(whole.ids, ElementsAre(9, 9, 2, 3, 4));
    EXPECT_THAT(whole.labels, ElementsAre(kNone, kNone, 2, 3, 4));
    const Document cut = teacher_document(document, 2);
    EXPECT_THAT(cut.ids, ElementsAre(9, 9, 2));
    EXPECT_THAT(cut.labels, ElementsAre(kNone, kNone, 2));
    EXPECT_TRUE(teacher_document(document, 7).ids.empty());
}

}  // namespace
}  // namespace distilld
