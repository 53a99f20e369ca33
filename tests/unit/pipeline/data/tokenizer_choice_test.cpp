#include "pipeline/data/tokenizer_choice.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "pipeline/data/tokenizer/special_token_files.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

namespace fs = std::filesystem;
using test::write_bytes;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

/// A tokenizer in a small form, with what goes around it; `type` is its model's.
void write_tokenizer(const fs::path& folder, const std::string& type) {
    fs::create_directories(folder);
    write_bytes(folder / "tokenizer.json", R"({"model": {"type": ")" + type +
                                               R"(", "vocab": {"a": 0, "b": 1, "ab": 2, "<s>": 3}, "merges": ["a b"]},
                    "added_tokens": [{"id": 7, "content": "<end>", "special": true}]})");
    write_bytes(folder / "tokenizer_config.json",
                R"({"bos_token": "<s>", "eos_token": {"content": "<end>"}, "pad_token": "<pad>",
                    "added_tokens_decoder": {"9": {"content": "<pad>"}}})");
}

class TokenizerChoiceTest : public ::testing::Test {
  protected:
    TokenizerChoice choose(const fs::path& named, const fs::path& model, std::uint32_t vocabulary) {
        return choose_tokenizer({named, model, vocabulary}).value();
    }
    test::TemporaryFolder folder_;
};

TEST_F(TokenizerChoiceTest, BytesAreForAVocabularyOfBytes) {
    for (const std::uint32_t vocabulary : {257U, 264U, 384U}) {
        const TokenizerChoice choice = choose("", "", vocabulary);
        ASSERT_NE(choice.tokenizer, nullptr);
        EXPECT_EQ(choice.special, (SpecialTokens{std::nullopt, {256}, std::nullopt}));
        EXPECT_EQ(choice.description(true), "byte tokenizer, 257 tokens");
        EXPECT_EQ(choice.description(false), "none: the data has ids");
    }
    for (const std::uint32_t vocabulary : {256U, 385U, 512U, 32000U}) {
        const TokenizerChoice choice = choose("", "", vocabulary);
        EXPECT_EQ(choice.tokenizer, nullptr);
        EXPECT_THAT(choice.refusal,
                    AllOf(StartsWith("/student/tokenizer: there is none, and the student's vocabulary of " +
                                     std::to_string(vocabulary) + " is not that of the byte tokenizer, 257; "),
                          HasSubstr("give student.tokenizer a folder")));
        EXPECT_EQ(choice.description(false), "none: the data has ids");
    }
}

TEST_F(TokenizerChoiceTest, TheModelsOwnComesBeforeBytes) {
    const fs::path model = folder_ / "model";
    fs::create_directory(model);
    EXPECT_NE(choose("", model, 257).tokenizer, nullptr);  // no tokenizer files: bytes
    write_bytes(model / "tokenizer.model", "sentencepiece");
    TokenizerChoice choice = choose("", model, 257);
    EXPECT_EQ(choice.tokenizer, nullptr);
    EXPECT_THAT(choice.refusal, HasSubstr("has a tokenizer.model and no tokenizer.json"));
    EXPECT_EQ(choice.folder, model);
    write_tokenizer(model, "Unigram");
    choice = choose("", model, 257);
    EXPECT_EQ(choice.tokenizer, nullptr);
    EXPECT_THAT(choice.refusal, HasSubstr("model/tokenizer.json: model.type \"Unigram\""));
    EXPECT_EQ(choice.special, std::nullopt);  // its config.json knows them
    EXPECT_EQ(choice.description(false), "none: the data has ids; the export copies the files in " + model.string());
    ASSERT_TRUE(write_byte_tokenizer(model));
    choice = choose("", model, 512);
    ASSERT_NE(choice.tokenizer, nullptr);
    EXPECT_TRUE(choice.of_the_model);
    EXPECT_EQ(choice.special, (SpecialTokens{std::nullopt, {256}, std::nullopt}));
    EXPECT_EQ(choice.description(true), model.string() + " (byte tokenizer, 257 tokens)");
}

TEST_F(TokenizerChoiceTest, TheOneThatIsNamedComesFirst) {
    const fs::path model = folder_ / "model";
    const fs::path named = folder_ / "named";
    ASSERT_TRUE(write_byte_tokenizer(model));
    const auto missing = choose_tokenizer({named, model, 257});
    ASSERT_FALSE(missing);
    EXPECT_EQ(missing.error().message,
              "/student/tokenizer: " + named.string() + " is not a folder with a tokenizer.json");
    write_tokenizer(named, "Unigram");
    const TokenizerChoice choice = choose(named, model, 257);
    EXPECT_EQ(choice.tokenizer, nullptr);
    EXPECT_THAT(choice.refusal, StartsWith("/student/tokenizer: " + named.string()));
    EXPECT_EQ(choice.folder, named);
    EXPECT_FALSE(choice.of_the_model);
    EXPECT_EQ(choice.special, (SpecialTokens{3, {7}, 9}));
}

TEST_F(TokenizerChoiceTest, BytePairsAreUnderstood) {
    write_tokenizer(folder_.path(), "BPE");
    const TokenizerChoice choice = choose(folder_.path(), "", 10);
    ASSERT_NE(choice.tokenizer, nullptr) << choice.refusal;
    EXPECT_EQ(choice.description(true), folder_.path().string() + " (BPE tokenizer, 8 tokens)");
    EXPECT_EQ(choice.tokenizer->end_of_text(), 7);
    EXPECT_EQ(choice.special, (SpecialTokens{3, {7}, 9}));
    EXPECT_THAT(choice.tokenizer->encode("abb<end>a"), ElementsAre(2, 1, 7, 0));
    EXPECT_EQ(choice.tokenizer->decode({2, 1, 7, 6}), "ab b <end> \xEF\xBF\xBD");
}

TEST_F(TokenizerChoiceTest, SpecialTokensAreReadWhereTheyAreNumbered) {
    EXPECT_EQ(read_special_tokens(folder_.path()).value(), std::nullopt);
    write_bytes(folder_ / "tokenizer_config.json", R"({"eos_token": null, "bos_token": "<unknown>"})");
    const auto none = read_special_tokens(folder_.path()).value();
    ASSERT_TRUE(none);
    EXPECT_EQ(none->bos, std::nullopt);
    EXPECT_THAT(none->eos, IsEmpty());
    ASSERT_TRUE(write_byte_tokenizer(folder_.path()));
    EXPECT_THAT(read_special_tokens(folder_.path()).value()->eos, ElementsAre(256));
    write_bytes(folder_ / "tokenizer_config.json", "[]");
    EXPECT_THAT(read_special_tokens(folder_.path()).error().message,
                HasSubstr("tokenizer_config.json: is not a JSON object"));
}

}  // namespace
}  // namespace distilld
