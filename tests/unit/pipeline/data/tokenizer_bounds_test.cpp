#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include "pipeline/data/dataset.hpp"
#include "pipeline/data/tokenizer/special_token_files.hpp"
#include "pipeline/data/tokenizer/tokenizer.hpp"
#include "pipeline/data/tokenizer_choice.hpp"
#include "tests/support/confined_child.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

namespace fs = std::filesystem;
using test::in_confined_child;
using test::outcome_of;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// A tokenizer of a few letters, with more of tokenizer.json.
std::string tokenizer_json(const std::string& more) {
    return R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2}, "merges": []})" +
           (more.empty() ? "" : ", " + more) + "}";
}

std::string replace(const std::string& what, const std::string& content) {
    return R"({"type": "Replace", "pattern": {"String": ")" + what + R"("}, "content": ")" + content + R"("})";
}

class TokenizerBounds : public ::testing::Test {
  protected:
    std::unique_ptr<Tokenizer> tokenizer(const std::string& more) {
        folder_.write("tokenizer.json", tokenizer_json(more));
        return load_tokenizer(folder_.path()).value();
    }
    static std::string refusal(const std::function<void()>& what) {
        try {
            what();
        } catch (const ErrorException& error) {
            return outcome_of(Result<void>(error.error()));
        }
        return "done";
    }

    test::TemporaryFolder folder_;
};

/// Each `a` can be matched in two ways: 2^200 of them. A text without a `c` is not even tried.
const std::string kManyWays = std::string(200, 'a') + "bc";
constexpr const char* kExponential =
    R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(?:a|a)+c"}, "behavior": "Isolated"})";

TEST_F(TokenizerBounds, F11ARegexThatTriesAgainAndAgainIsGivenUp) {
    const auto made = tokenizer(kExponential);
    EXPECT_EQ(made->encode("aac").size(), 3U);
    EXPECT_THAT(refusal([&] { static_cast<void>(made->encode(kManyWays)); }),
                AllOf(StartsWith("invalid_input: "), HasSubstr("needs too many steps for a text of 202 bytes")));
}

TEST_F(TokenizerBounds, F11TheLineOnWhichARegexIsGivenUpIsNamed) {
    const auto made = tokenizer(kExponential);
    const auto file = folder_.write("train.jsonl", "{\"text\":\"aac\"}\n{\"text\":\"" + kManyWays + "\"}\n");
    for (const std::uint32_t threads : {1U, 2U}) {
        DatasetOptions options;
        options.sequence_length = 4;
        options.vocabulary_size = 3;
        options.threads = threads;
        const std::vector<fs::path> files{file};
        const auto read = load_jsonl_dataset(files, made.get(), options);
        ASSERT_FALSE(read);
        EXPECT_THAT(outcome_of(read), AllOf(StartsWith("invalid_input: "), HasSubstr("train.jsonl:2: "),
                                            HasSubstr("needs too many steps")));
    }
}

TEST_F(TokenizerBounds, ARunOfSpacesIsNoMistake) {
    const auto made = tokenizer(R"("pre_tokenizer": {"type": "ByteLevel"})");
    constexpr std::size_t kSpaces = 4U << 20U;
    EXPECT_EQ(refusal([&] { static_cast<void>(made->encode("a" + std::string(kSpaces, ' ') + "b")); }), "done");
}

TEST_F(TokenizerBounds, F11ReplacementsThatMultiplyATextAreRefusedBeforeItIsMade) {
    const std::string thousand(1000, 'a');
    const std::string twice = replace("a", thousand) + ", " + replace("a", thousand);
    const std::string million(1'000'000, 'b');
    for (const std::string& more : {R"("normalizer": {"type": "Sequence", "normalizers": [)" + twice + "]}",
                                    R"("normalizer": {"type": "Prepend", "prepend": ")" + million + "\"}",
                                    R"("pre_tokenizer": {"type": "Metaspace", "replacement": ")" + million + "\"}"}) {
        const auto made = tokenizer(more);
        EXPECT_THAT(refusal([&] { static_cast<void>(made->encode("a a a a")); }),
                    AllOf(StartsWith("invalid_input: the tokenizer's tokenizer.json makes a text longer than"),
                          HasSubstr(std::to_string(16 * 7 + 1024))))
            << more.substr(0, 80);
    }
    const auto made = tokenizer(R"("decoder": {"type": "Sequence", "decoders": [)" + twice + "]}");
    EXPECT_THAT(refusal([&] { static_cast<void>(made->decode({0, 0})); }), HasSubstr("makes a text longer than"));
}

TEST_F(TokenizerBounds, F11AnAddedTokenIsNotMultipliedEither) {
    folder_.write(
        "tokenizer.json",
        tokenizer_json(R"("added_tokens": [{"id": 3, "content": "aaa", "normalized": true}], "normalizer": )" +
                       replace("a", std::string(1'000'000, 'b'))));
    EXPECT_THAT(outcome_of(load_tokenizer(folder_.path())),
                AllOf(HasSubstr("tokenizer.json: "), HasSubstr("makes a text longer than")));
}

TEST_F(TokenizerBounds, UsualReplacementsAreFarBelowTheBound) {
    const auto made = tokenizer(R"("normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, )" +
                                replace(" ", "\xE2\x96\x81") + "]}");
    std::string longest;
    for (int i = 0; i < 10'000; ++i) {
        longest += "\xEF\xB7\xBA";  // U+FDFA: of all characters that with the longest NFKC, 18 letters and spaces
    }
    EXPECT_EQ(refusal([&] { static_cast<void>(made->encode(longest)); }), "done");
}

TEST_F(TokenizerBounds, F3TokenizerFilesAreReadWhereTheyLead) {
    const fs::path base = fs::canonical(folder_.path());
    for (const char* name : {"root", "outside"}) {
        fs::create_directory(base / name);
    }
    const std::string tokenizer = tokenizer_json("");
    const FileRule rule{.roots = {base / "root"}};
    for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
        const fs::path file = base / "root" / name;
        folder_.write("root/tokenizer.json", tokenizer);
        folder_.write("root/tokenizer_config.json", "{}");
        folder_.write("outside/file", tokenizer);
        fs::remove(file);
        fs::create_symlink("../outside/file", file);
        const TokenizerWish wish{base / "root", {}, 0};
        EXPECT_THAT(in_confined_child(rule, [&] { return outcome_of(choose_tokenizer(wish)); }),
                    AllOf(StartsWith("path_not_allowed: /student/tokenizer: "), HasSubstr(file.string())));
        EXPECT_THAT(in_confined_child(rule, [&] { return outcome_of(load_tokenizer(base / "root")); }),
                    StartsWith("path_not_allowed: "));
        fs::remove(file);
        ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
        EXPECT_THAT(outcome_of(load_tokenizer(base / "root")), HasSubstr("is not a regular file"));
        fs::remove(file);
    }
    EXPECT_EQ(in_confined_child(rule, [&] { return outcome_of(load_tokenizer(base / "root")); }), "done");
}

TEST_F(TokenizerBounds, F3DataIsReadWhereItLeads) {
    const fs::path base = fs::canonical(folder_.path());
    fs::create_directory(base / "root");
    folder_.write("secret.jsonl", "{\"input_ids\":[1,2,3,4,5]}\n");
    fs::create_symlink("../secret.jsonl", base / "root/train.jsonl");
    const auto read = [&] {
        DatasetOptions options;
        options.sequence_length = 4;
        return outcome_of(load_jsonl_dataset(std::vector<fs::path>{base / "root/train.jsonl"}, nullptr, options));
    };
    EXPECT_THAT(in_confined_child({.roots = {base / "root"}}, read), StartsWith("path_not_allowed: "));
    EXPECT_EQ(in_confined_child({.roots = {base}}, read), "done");
}

}  // namespace
}  // namespace distilld
