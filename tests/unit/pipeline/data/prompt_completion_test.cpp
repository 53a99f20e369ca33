#include "pipeline/data/jsonl_document.hpp"

#include <gmock/gmock.h>

#include "pipeline/core/micro_batch.hpp"
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

}  // namespace
}  // namespace distilld
