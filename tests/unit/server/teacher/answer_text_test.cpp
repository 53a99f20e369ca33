#include "server/teacher/answer_text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace distilld::teacher {
namespace {

using testing::ElementsAre;

constexpr std::int32_t kEnd = 256;  // of the byte tokenizer

class AnswerTextTest : public testing::Test {
  protected:
    /// What each byte of `text` adds, and the rest.
    std::vector<std::string> pieces(std::string_view text, std::vector<std::string> stops = {}) {
        AnswerText answer(*tokenizer_, {}, std::move(stops), true);
        std::vector<std::string> added;
        for (const char byte : text) {
            added.push_back(answer.add(static_cast<unsigned char>(byte)));
        }
        added.push_back(answer.finish());
        stopped_by_ = answer.stopped_by().value_or("");
        return added;
    }

    std::unique_ptr<Tokenizer> tokenizer_ = make_byte_tokenizer();
    std::string stopped_by_;
};

TEST_F(AnswerTextTest, CharactersComeWhole) {
    EXPECT_THAT(pieces("aé€b"), ElementsAre("a", "", "é", "", "", "€", "b", ""));
    EXPECT_THAT(pieces("\xF0\x9F\x98\x80"), ElementsAre("", "", "", "\xF0\x9F\x98\x80", ""));
}

TEST_F(AnswerTextTest, BytesThatNoCharacterHasBecomeReplacements) {
    EXPECT_THAT(pieces("\x80z"), ElementsAre("\xEF\xBF\xBD", "z", ""));
    EXPECT_THAT(pieces("a\xE2"), ElementsAre("a", "", "\xEF\xBF\xBD"));
    EXPECT_THAT(pieces("\xE2\x82z"), ElementsAre("", "", "\xEF\xBF\xBDz", "")) << "one for both, as transformers";
    EXPECT_THAT(pieces("\xF0\xF0\x9F\x98\x80"), ElementsAre("", "\xEF\xBF\xBD", "", "", "\xF0\x9F\x98\x80", ""));
    std::string all;
    for (const std::string& piece : pieces(std::string(40, '\xF0'))) {
        all += piece;
    }
    EXPECT_EQ(all.size(), 120U);
}

TEST_F(AnswerTextTest, NothingOfAStopTextIsTold) {
    EXPECT_THAT(pieces("one\n\ntwo", {"\n\n"}), ElementsAre("o", "n", "e", "", "", "", "", "", ""));
    EXPECT_EQ(stopped_by_, "\n\n");
    EXPECT_THAT(pieces("a\nb", {"\n\n"}), ElementsAre("a", "", "\nb", ""));
    EXPECT_THAT(pieces("ab", {"abc"}), ElementsAre("", "", "ab"));
    EXPECT_EQ(stopped_by_, "");
    EXPECT_THAT(pieces("xababc", {"abc", "q"}), ElementsAre("x", "", "", "ab", "", "", ""));
    EXPECT_EQ(stopped_by_, "abc");
    EXPECT_THAT(pieces("xyz", {"yz", "y"}), ElementsAre("x", "", "", ""));
    EXPECT_EQ(stopped_by_, "y") << "the first that is complete";
}

TEST_F(AnswerTextTest, SpecialTokensAreLeftOutOrSpelledOut) {
    AnswerText without(*tokenizer_, {}, {}, true);
    EXPECT_EQ(without.add('a') + without.add(kEnd) + without.add('b'), "ab");
    AnswerText with(*tokenizer_, {}, {}, false);
    EXPECT_EQ(with.add('a') + with.add(kEnd) + with.add('b'), "a<|endoftext|>b");
}

TEST_F(AnswerTextTest, TheEndOfThePromptIsNotTold) {
    const std::vector<std::int32_t> prompt{'a', 0xE2, 0x82};
    AnswerText answer(*tokenizer_, prompt, {}, true);
    EXPECT_EQ(answer.add(0xAC) + answer.add('b') + answer.finish(),
              "\xEF\xBF\xBD"
              "b");
    const std::vector<std::int32_t> long_prompt(1000, 'p');
    AnswerText behind(*tokenizer_, long_prompt, {}, true);
    EXPECT_EQ(behind.add('x') + behind.add('y'), "xy");
}

}  // namespace
}  // namespace distilld::teacher
