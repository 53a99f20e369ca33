#include "pipeline/data/read_documents.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.hpp"
#include "tests/unit/pipeline/data/packed.hpp"

namespace distilld {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint32_t kThreads[] = {1, 2, 7};

/// Some MB, so that every thread is given something.
std::string many_lines(int first, int count) {
    std::string text;
    for (int i = first; i < first + count; ++i) {
        text += R"({"text":")" + std::to_string(i) + " " +
                std::string(static_cast<std::size_t>(i) * 37 % 1'001, static_cast<char>('a' + i % 26)) + "\"}\n";
        if (i % 5 == 0) {
            text += " \n";
        }
        if (i % 7 == 0) {
            text += R"({"input_ids":[1,2,3],"labels":[1,-100,3]})"
                    "\n";
        }
    }
    return text;
}

struct Taken {
    std::vector<std::vector<std::int32_t>> ids;
    std::vector<std::vector<std::int32_t>> labels;
    std::string error;
    bool cancelled = false;
    ReadingProgress progress;
};

class ReadDocuments : public ::testing::Test {
  protected:
    Taken read(const std::vector<std::filesystem::path>& files, std::uint32_t threads) {
        Taken taken;
        DatasetOptions options;
        options.threads = threads;
        options.on_progress = [&taken, this](const ReadingProgress& progress) {
            EXPECT_GE(progress.share, taken.progress.share);
            taken.progress = progress;
            return progress.tokens < stop_at_tokens_;
        };
        double share = 0;
        const auto take = [&](const Document& document, std::uint64_t number, double read_share) -> Result<void> {
            EXPECT_EQ(number, taken.ids.size());
            EXPECT_GE(read_share, share);
            EXPECT_LE(read_share, 1);
            share = read_share;
            if (document.ids == std::vector<std::int32_t>{'?'}) {
                return invalid_input("is not taken");
            }
            taken.ids.push_back(document.ids);
            taken.labels.push_back(document.has_labels ? document.labels : std::vector<std::int32_t>());
            return {};
        };
        if (Result<void> done = read_documents(files, tokenizer_.get(), options, take); !done) {
            taken.error = done.error().message;
            taken.cancelled = done.error().kind == ErrorKind::cancelled;
        }
        return taken;
    }

    test::TemporaryFolder folder_;
    std::unique_ptr<Tokenizer> tokenizer_ = make_byte_tokenizer();
    std::uint64_t stop_at_tokens_ = std::numeric_limits<std::uint64_t>::max();
};

TEST_F(ReadDocuments, StandInTheOrderOfTheFilesWhateverTheThreads) {
    const std::string one = many_lines(0, 9'000);
    const std::string two = many_lines(9'000, 9'000);
    const auto whole = read({folder_.write("whole", one + two)}, 1);
    ASSERT_EQ(whole.error, "");
    ASSERT_GE(whole.ids.size(), 18'000U);
    EXPECT_EQ(whole.progress.threads, 1U);
    const std::vector<std::filesystem::path> files = {folder_.write("one.jsonl", one), folder_.write("empty", ""),
                                                      folder_.write("two.gz", test::gzipped(two))};
    for (const std::uint32_t threads : kThreads) {
        const auto taken = read(files, threads);
        EXPECT_EQ(taken.error, "");
        EXPECT_TRUE(taken.ids == whole.ids) << threads;
        EXPECT_TRUE(taken.labels == whole.labels) << threads;
        EXPECT_DOUBLE_EQ(taken.progress.share, 1);
        EXPECT_EQ(taken.progress.tokens, whole.progress.tokens);
        EXPECT_EQ(taken.progress.threads, std::min<std::size_t>(threads, 5)) << "one a MB";
    }
}

TEST_F(ReadDocuments, TheFirstBadLineIsTheOneThatIsNamed) {
    const std::string good = many_lines(0, 9'000);
    const std::string bad = good + "{\"text\":5}\n" + many_lines(0, 2'000) + "{\n" + many_lines(0, 2'000);
    const auto file = folder_.write("bad.jsonl", bad);
    const std::size_t line = static_cast<std::size_t>(std::ranges::count(good, '\n')) + 1;
    const auto all = read({folder_.write("good", good)}, 1).ids;
    for (const std::uint32_t threads : kThreads) {
        const auto taken = read({file, folder_.path() / "absent"}, threads);
        EXPECT_EQ(taken.error,
                  file.string() + ":" + std::to_string(line) + ": \"text\" is a number, expected a string");
        EXPECT_TRUE(taken.ids == all) << "what stands before it has been taken";
    }
}

TEST_F(ReadDocuments, ErrorsOfTheReaderComeBehindTheLinesBeforeThem) {
    const std::string good = many_lines(0, 9'000);
    const auto file = folder_.write("good.jsonl", good);
    const std::string packed = test::gzipped(good);
    const auto cut = folder_.write("cut.gz", packed.substr(0, packed.size() - 1));
    for (const std::uint32_t threads : kThreads) {
        EXPECT_THAT(read({file, folder_.path() / "absent"}, threads).error, HasSubstr("absent: cannot open"));
        const auto taken = read({file, cut}, threads);
        EXPECT_EQ(taken.error, cut.string() + ": is cut off: the gzip data have no end");
        EXPECT_GT(taken.ids.size(), 9'000U);
        const auto refused = read({file, folder_.write("odd", "\n{\"text\":\"?\"}\n")}, threads);
        EXPECT_THAT(refused.error, HasSubstr("odd:2: is not taken"));
    }
}

TEST_F(ReadDocuments, EndsSoonWhenItIsToldTo) {
    const auto file = folder_.write("lines", many_lines(0, 9'000));
    stop_at_tokens_ = 1'000'000;
    for (const std::uint32_t threads : kThreads) {
        const auto taken = read({file}, threads);
        EXPECT_TRUE(taken.cancelled);
        EXPECT_GE(taken.progress.tokens, stop_at_tokens_);
        EXPECT_LT(taken.progress.tokens, 2 * stop_at_tokens_) << "of 4.5 million";
    }
}

TEST_F(ReadDocuments, WhatIsThrownArrivesAtTheCaller) {
    struct Throwing final : Tokenizer {
        std::vector<std::int32_t> encode(std::string_view text) const override {
            if (text.starts_with("8999 ")) {
                throw std::runtime_error("the tokenizer fell over");
            }
            return {1, 2};
        }
        std::string decode(const std::vector<std::int32_t>&) const override { return ""; }
        bool is_special(std::int32_t) const override { return false; }
        std::string token_bytes(std::int32_t) const override { return {}; }
        std::uint32_t vocabulary_size() const override { return 3; }
        std::optional<std::int32_t> end_of_text() const override { return std::nullopt; }
        std::string kind() const override { return "throwing"; }
    };
    tokenizer_ = std::make_unique<Throwing>();
    const auto file = folder_.write("lines", many_lines(0, 9'500));
    for (const std::uint32_t threads : kThreads) {
        EXPECT_THROW(read({file}, threads), std::runtime_error);
    }
}

TEST_F(ReadDocuments, ALongLineAmongShortOnesPasses) {
    const std::string text = "{\"text\":\"" + std::string(9'000'000, 'x') + "\"}\n";
    const auto file = folder_.write("lines", many_lines(1, 3) + text + many_lines(1, 3));
    for (const std::uint32_t threads : kThreads) {
        const auto taken = read({file}, threads);
        ASSERT_EQ(taken.ids.size(), 7U);
        EXPECT_EQ(taken.ids[3].size(), 9'000'000U);
    }
}

}  // namespace
}  // namespace distilld
