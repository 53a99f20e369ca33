#include "pipeline/data/tokenizer/tokenizer_hash.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files/files.hpp"
#include "pipeline/data/tokenizer/tokenizer.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

class TokenizerHash : public testing::Test {
  protected:
    Result<std::string> hash_of(const std::string& json) {
        const auto written = write_file_atomically(folder_.path() / "tokenizer.json", json);
        EXPECT_TRUE(written);
        return tokenizer_hash_of(folder_.path());
    }

    test::TemporaryFolder folder_;
};

constexpr const char* kPlain = R"({"version": "1.0", "added_tokens": [{"id": 2, "content": "<e>", "special": true}],
    "pre_tokenizer": null, "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}})";

TEST_F(TokenizerHash, IsOfIdsAndTokensAndNotOfHowTheyAreWritten) {
    const std::string hash = hash_of(kPlain).value();
    EXPECT_EQ(hash.size(), 64U);
    // Another order, fields that other versions write, merges as pairs, an added token that is in the vocabulary too.
    EXPECT_EQ(hash_of(R"({"model": {"vocab": {"b": 1, "<e>": 2, "a": 0}, "type": "BPE", "merges": [["a", "b"]],
        "ignore_merges": true}, "added_tokens": [{"content": "<e>", "id": 2, "special": false, "lstrip": true}],
        "normalizer": {"type": "NFC"}, "version": "1.1"})")
                  .value(),
              hash);
}

TEST_F(TokenizerHash, ADifferenceOfOneTokenIsOne) {
    const std::string hash = hash_of(kPlain).value();
    const auto with = [&](const char* vocabulary) {
        return hash_of(std::string(R"({"model": {"vocab": )") + vocabulary +
                       R"(}, "added_tokens": [{"id": 2, "content": "<e>"}]})")
            .value();
    };
    EXPECT_EQ(with(R"({"a": 0, "b": 1})"), hash);
    EXPECT_NE(with(R"({"a": 1, "b": 0})"), hash) << "shuffled";
    EXPECT_NE(with(R"({"a": 0, "c": 1})"), hash);
    EXPECT_NE(with(R"({"a": 0, "b": 1, "c": 3})"), hash);
    EXPECT_NE(with(R"({"a": 0, "b1 1 ": 1})"), with(R"({"a": 0, "b": 1, " ": 1})"));
}

TEST_F(TokenizerHash, ModelsThatWeCannotReadTextWithHaveOneToo) {
    EXPECT_EQ(hash_of(R"({"model": {"type": "Unigram", "vocab": [["a", -1.5], ["b", -2]]},
        "added_tokens": [{"id": 2, "content": "<e>"}]})")
                  .value(),
              hash_of(kPlain).value());
}

TEST_F(TokenizerHash, WhatIsNoneIsRefused) {
    EXPECT_EQ(tokenizer_hash_of(folder_.path()).value(), "");
    EXPECT_EQ(tokenizer_hash_of({}).value(), "");
    for (const char* broken : {"{}", R"({"model": {"vocab": 3}})", R"({"model": {"vocab": {"a": -1}}})",
                               R"({"model": {"vocab": {"a": "x"}}})", R"({"model": {"vocab": [3]}})",
                               R"({"model": {"vocab": {"a": 0}}, "added_tokens": [{"content": "x"}]})"}) {
        const auto hash = hash_of(broken);
        ASSERT_FALSE(hash) << broken;
        EXPECT_THAT(hash.error().message, testing::HasSubstr("tokenizer.json: has no vocabulary of ids and tokens"));
    }
}

TEST_F(TokenizerHash, TheByteTokenizersIsThatOfItsFile) {
    ASSERT_TRUE(write_byte_tokenizer(folder_.path()));
    EXPECT_EQ(byte_tokenizer_hash(), tokenizer_hash_of(folder_.path()).value());
}

TEST_F(TokenizerHash, TheByteTokenizerIsKnownByItsFiles) {
    EXPECT_FALSE(is_byte_tokenizer(folder_.path())) << "there is none";
    ASSERT_TRUE(write_byte_tokenizer(folder_.path()));
    EXPECT_TRUE(is_byte_tokenizer(folder_.path()));
    static_cast<void>(hash_of(kPlain));
    EXPECT_FALSE(is_byte_tokenizer(folder_.path()));
}

}  // namespace
}  // namespace distilld
