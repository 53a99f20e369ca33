#include "pipeline/graph/rollout/shown_answers.hpp"

#include <gmock/gmock.h>

#include "base/error.hpp"
#include "base/utf8.hpp"

namespace distilld {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::SizeIs;
using ::testing::StartsWith;

TokenBatch prompts_of(std::vector<std::int32_t> first, std::int32_t length) {
    TokenBatch batch;
    batch.rows = 1;
    batch.columns = static_cast<std::uint32_t>(first.size());
    batch.input_ids = std::move(first);
    batch.lengths = {length};
    return batch;
}

KeptAnswers answer_of(std::vector<std::int32_t> ids, std::vector<float> log_probabilities) {
    return {0, 6, {0}, {{std::move(ids), std::move(log_probabilities)}}};
}

TEST(ShownAnswers, BecomeFewerTheLongerARunIs) {
    std::vector<std::uint64_t> shown;
    for (std::uint64_t step = 1; step <= 64; ++step) {
        if (shows_answers(step)) {
            shown.push_back(step);
        }
    }
    EXPECT_THAT(shown, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 20, 22, 24, 26, 28, 30,
                                   32, 36, 40, 44, 48, 52, 56, 60, 64));
    EXPECT_FALSE(shows_answers(1'000'001));
}

TEST(ShownAnswers, SayWhatTheStudentWrote) {
    const TextOfIds text = [](const std::vector<std::int32_t>& ids) { return std::string(ids.begin(), ids.end()); };
    const auto event =
        shown_answers(7, prompts_of({'O', 'n', 0, 0}, 2), answer_of({'c', 'e'}, {-0.5F, -1.0F}), 2, text);
    EXPECT_EQ(event.step, 7U);
    EXPECT_EQ(event.version, 6U);
    ASSERT_THAT(event.samples, SizeIs(1));
    EXPECT_EQ(event.samples[0].prompt, "On") << "without the room behind it";
    EXPECT_EQ(event.samples[0].text, "ce");
    EXPECT_EQ(event.samples[0].tokens, 2U);
    EXPECT_TRUE(event.samples[0].cut);
    EXPECT_EQ(event.samples[0].log_probability, -0.75);

    const auto ended = shown_answers(7, prompts_of({5, 61}, 2), answer_of({7, 1}, {-1.0F, 0.0F}), 3, nullptr);
    EXPECT_EQ(ended.samples[0].prompt, "5 61") << "ids without a tokenizer";
    EXPECT_EQ(ended.samples[0].text, "7 1");
    EXPECT_FALSE(ended.samples[0].cut);
}

TEST(ShownAnswers, AreAtMostTwo) {
    TokenBatch prompts = prompts_of({1, 2, 3}, 1);
    prompts.rows = 3;
    prompts.columns = 1;
    prompts.lengths = {1, 1, 1};
    const KeptAnswers answers{0, 0, {0, 1, 2}, {{{4}, {0.0F}}, {{5}, {0.0F}}, {{6}, {0.0F}}}};
    const auto event = shown_answers(1, prompts, answers, 9, nullptr);
    ASSERT_THAT(event.samples, SizeIs(2));
    EXPECT_EQ(event.samples[1].prompt, "2");
    EXPECT_EQ(event.samples[1].text, "5");
}

TEST(ShownAnswers, AreBoundedAndUtf8) {
    const TextOfIds text = [](const std::vector<std::int32_t>& ids) {
        EXPECT_LE(ids.size(), 1000U) << "no more is decoded than can be shown";
        std::string whole;
        for (const std::int32_t id : ids) {
            whole += id == 0 ? "a" : id == 1 ? "\xFF" : "€";
        }
        return whole;
    };
    std::vector<std::int32_t> ids(5000, 2);
    ids.front() = 0;
    ids.back() = 0;
    const auto long_ones = shown_answers(1, prompts_of(ids, 5000), answer_of(ids, {}), 9, text).samples[0];
    const auto shown = [](const std::string& piece) {
        EXPECT_TRUE(is_utf8(piece));
        EXPECT_LE(piece.size(), 1000U + std::string_view("…").size());
        EXPECT_GE(piece.size(), 1000U) << "and not less than there is room for";
    };
    shown(long_ones.prompt);
    shown(long_ones.text);
    EXPECT_THAT(long_ones.prompt, StartsWith("…€"));
    EXPECT_THAT(long_ones.prompt, EndsWith("€a")) << "a prompt's end says what is asked";
    EXPECT_THAT(long_ones.text, StartsWith("a€"));
    EXPECT_THAT(long_ones.text, EndsWith("€…"));
    EXPECT_EQ(shown_answers(1, prompts_of({1}, 1), answer_of({0, 1}, {}), 9, text).samples[0].text, "a\xEF\xBF\xBD");

    const TextOfIds refusing = [](const std::vector<std::int32_t>&) -> std::string {
        throw ErrorException(invalid_input("too many steps"));
    };
    EXPECT_EQ(shown_answers(1, prompts_of({1}, 1), answer_of({3, 4}, {}), 9, refusing).samples[0].text, "3 4");
}

}  // namespace
}  // namespace distilld
