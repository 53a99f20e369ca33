#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "api/job_spec_json.hpp"

namespace distilld::api {
namespace {

auto with_eval(const std::string& eval) {
    return parse_job_spec(R"({"student": {"model": "m"}, "dataset": {"train": "d", "sequence_length": 8},
        "training": {"max_steps": 1}, "output": "o", "eval": )" +
                          eval + "}");
}

TEST(EvalRules, ACommandIsAListOfWords) {
    const auto spec = with_eval(R"({"command": ["sh", "-c", "a\n\tb", "{checkpoint}"], "every_steps": 5,
        "command_timeout_secs": "5m"})")
                          .value();
    EXPECT_THAT(spec.eval.command, ::testing::ElementsAre("sh", "-c", "a\n\tb", "{checkpoint}"));
    EXPECT_EQ(spec.eval.every_steps, 5U);
    EXPECT_EQ(spec.eval.command_timeout_secs, 300);
    EXPECT_EQ(with_eval(R"({"command": ["judge"]})").value().eval.command_timeout_secs, 600);
}

TEST(EvalRules, OthersAreRefusedByTheirField) {
    const auto refusal = [](const std::string& eval) {
        const auto spec = with_eval(eval);
        return spec ? std::string("accepted") : describe(spec.error());
    };
    using ::testing::HasSubstr;
    EXPECT_THAT(refusal(R"({"every_steps": 5})"), HasSubstr("/eval/every_steps: is the interval of /eval/command"));
    EXPECT_THAT(refusal(R"({"command": "judge it"})"), HasSubstr("/eval/command: "));
    EXPECT_THAT(refusal(R"({"command": ["a\u0000b"]})"), HasSubstr("/eval/command/0: "));
    EXPECT_THAT(refusal(R"({"command": [""]})"), HasSubstr("/eval/command/0: "));
    EXPECT_THAT(refusal(R"({"command": ["a"], "command_timeout_secs": 0})"), HasSubstr("/eval/command_timeout_secs: "));
    EXPECT_THAT(refusal(R"({"command": ["a"], "command_timeout_secs": 86401})"),
                HasSubstr("/eval/command_timeout_secs: "));
}

}  // namespace
}  // namespace distilld::api
