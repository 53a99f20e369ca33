#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "api/job_spec_json.hpp"
#include "api/spec_overrides.hpp"

namespace distilld::api {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

auto spec_of_rollouts(const std::vector<Override>& changes) {
    constexpr const char* kSpec =
        R"({"student": {"model": "m", "lora": {}}, "teacher": {"endpoints": ["http://h:1"]},
            "rollout": {"endpoints": ["http://h:2"], "prompts": "p.jsonl", "max_prompt_tokens": 6, "max_tokens": 4},
            "training": {"max_steps": 1}, "output": "o"})";
    return parse_job_spec(apply_overrides(kSpec, changes).value());
}

std::string refusal_of_rollouts(const std::vector<Override>& changes) {
    const auto spec = spec_of_rollouts(changes);
    return spec ? std::string() : describe(spec.error());
}

TEST(RolloutRules, NeedNoDataset) {
    const auto spec = spec_of_rollouts({});
    ASSERT_TRUE(spec) << describe(spec.error());
    EXPECT_EQ(spec->dataset.sequence_length, 10U) << "a prompt and its answer";
    EXPECT_EQ(spec->dataset.packing, Packing::off);
    EXPECT_EQ(spec_of_rollouts({{"/dataset/sequence_length", "32"}}).value().dataset.sequence_length, 32U);
    EXPECT_THAT(refusal_of_rollouts({{"/rollout", "null"}}), HasSubstr("/dataset: dataset is required"));
    EXPECT_THAT(refusal_of_rollouts({{"/dataset/eval", "e.jsonl"}}), IsEmpty()) << "of held-out rows alone";
}

TEST(RolloutRules, TakeAStudentOfFullWeights) {
    for (const char* protocol : {"auto", "distilld", "sglang"}) {
        EXPECT_THAT(refusal_of_rollouts({{"/student/lora", "null"}, {"/rollout/protocol", protocol}}), IsEmpty());
    }
}

TEST(RolloutRules, TakeADatasetBelowLmbda1AndAReplayWithoutServers) {
    EXPECT_THAT(refusal_of_rollouts({{"/rollout/lmbda", "0.5"}, {"/dataset/train", "d.jsonl"}}), IsEmpty());
    EXPECT_THAT(refusal_of_rollouts({{"/rollout/endpoints", "null"}, {"/rollout/replay", "r.jsonl"}}), IsEmpty());
}

TEST(RolloutRules, RefuseWhatDoesNotFit) {
    struct Case {
        std::vector<Override> changes;
        const char* said;
    };
    const Case cases[] = {
        {{{"/teacher", "null"}}, "/rollout: needs a teacher"},
        {{{"/student/lora", "null"}, {"/rollout/protocol", "vllm"}},
         "/rollout/protocol: is vllm, which takes adapters"},
        {{{"/student/lora/merge", "true"}}, "/student/lora/merge: is not for /rollout"},
        {{{"/teacher/store", "s"}}, "/teacher/store: cannot hold answers that are written while"},
        {{{"/teacher/tokenizer", "t"}, {"/teacher/top_k", "8"}}, "/teacher/tokenizer: is for texts"},
        {{{"/dataset/train", "d.jsonl"}}, "/dataset/train: is replaced by /rollout/prompts"},
        {{{"/rollout/lmbda", "0.5"}}, "/dataset/train: train is required: the rows that take the places of prompts"},
        {{{"/rollout/endpoints", "null"}}, "/rollout/endpoints: endpoints is required"},
        {{{"/rollout/top_p", "0"}}, "/rollout/top_p: "},
        {{{"/rollout/lmbda", "1.5"}}, "/rollout/lmbda: "},
        {{{"/dataset/packing", "true"}}, "/dataset/packing: must be false with /rollout"},
        {{{"/dataset/sequence_length", "9"}},
         "/dataset/sequence_length: is 9, but a prompt and its answer may have 10"},
        {{{"/rollout/keep", "false"}, {"/rollout/staleness", "1"}}, "/rollout/keep: is false, but with staleness"},
        {{{"/training/ranks", "2"}, {"/training/gradient_groups", "2"}, {"/training/micro_batches", "2"}},
         "/rollout: takes one rank"},
        {{{"/rollout/api_key_env", "HOME"}}, "/rollout/api_key_env: "},
    };
    for (const Case& one : cases) {
        EXPECT_THAT(refusal_of_rollouts(one.changes), HasSubstr(one.said));
    }
}

}  // namespace
}  // namespace distilld::api
