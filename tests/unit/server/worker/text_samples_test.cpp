#include "server/worker/text_samples.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/support/fake_student.hpp"

namespace distilld {
namespace {

using ::testing::HasSubstr;

/// Says what it was asked, and goes on with bytes of its own.
class TalkingStudent final : public test::FakeStudent {
  public:
    std::vector<std::int32_t> sample(const std::vector<std::int32_t>& prompt, const SampleOptions& options) override {
        prompts.push_back(prompt);
        asked.push_back(options);
        return answer;
    }
    std::vector<std::vector<std::int32_t>> prompts;
    std::vector<SampleOptions> asked;
    std::vector<std::int32_t> answer{'y', 'e', 's'};
};

JobSpec spec_with(std::vector<std::string> prompts) {
    JobSpec spec;
    spec.eval.sample_prompts = std::move(prompts);
    spec.eval.sample_tokens = 7;
    spec.eval.sample_temperature = 0.5;
    return spec;
}

TEST(TextSamples, AreReadAndWrittenByTheTokenizer) {
    const std::shared_ptr<const Tokenizer> bytes = make_byte_tokenizer();
    const TextSamples samples = make_text_samples(spec_with({"ab", "c\n"}), bytes, "", 257).value();
    TalkingStudent student;
    const auto said = samples(student, 5);
    ASSERT_EQ(said.size(), 2U);
    EXPECT_EQ(said[0].prompt, "ab");
    EXPECT_EQ(said[0].text, "yes");
    EXPECT_EQ(student.prompts, (std::vector<std::vector<std::int32_t>>{{'a', 'b'}, {'c', '\n'}}));
    EXPECT_EQ(student.asked[0].max_tokens, 7U);
    EXPECT_EQ(student.asked[0].temperature, 0.5);
    EXPECT_EQ(student.asked[0].end, 256);
    // Others are drawn for another prompt and at another step, the same at the same.
    samples(student, 5);
    samples(student, 6);
    EXPECT_NE(student.asked[0].seed, student.asked[1].seed);
    EXPECT_EQ(student.asked[0].seed, student.asked[2].seed);
    EXPECT_NE(student.asked[0].seed, student.asked[4].seed);
}

TEST(TextSamples, WhatIsNoUtf8IsShownAsSuch) {
    const std::shared_ptr<const Tokenizer> bytes = make_byte_tokenizer();
    const TextSamples samples = make_text_samples(spec_with({"a"}), bytes, "", 257).value();
    TalkingStudent student;
    student.answer = {'x', 0xC3};
    EXPECT_EQ(samples(student, 1).front().text, "x\xEF\xBF\xBD");
}

TEST(TextSamples, NoneAreWantedWithoutPrompts) {
    EXPECT_FALSE(make_text_samples(JobSpec{}, nullptr, "there is none", 257).value());
}

TEST(TextSamples, RefusesWhatCannotBeRead) {
    EXPECT_THAT(make_text_samples(spec_with({"a"}), nullptr, "there is none", 257).error().message,
                HasSubstr("/eval/sample_prompts: there is no tokenizer to read them with: there is none"));
    const std::shared_ptr<const Tokenizer> bytes = make_byte_tokenizer();
    EXPECT_THAT(make_text_samples(spec_with({"a", "z"}), bytes, "", 100).error().message,
                HasSubstr("/eval/sample_prompts/1: has token 122, outside the student's vocabulary of 100"));
}

}  // namespace
}  // namespace distilld
