#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "api/job_spec_json.hpp"
#include "api/spec_overrides.hpp"
#include "base/json_text.hpp"

namespace distilld::api {
namespace {

using ::testing::HasSubstr;

constexpr const char* kSamples = R"({
    "student": {"format": "torchscript", "model": "/s.pt", "inputs": ["x"], "outputs": ["y", "h"]},
    "teacher": {"module": "/t.pt", "inputs": ["x", "z"], "outputs": ["y"]},
    "dataset": {"format": "tensors", "train": "/t.safetensors"},
    "training": {"max_steps": 3, "losses": [
        {"kind": "kl", "output": "y", "target": "teacher.y", "temperature": 2},
        {"kind": "mse", "output": "h", "target": "data.h", "weight": 0.5}]},
    "output": "/o"})";

std::string refusal(const std::vector<Override>& changes) {
    const auto spec = parse_job_spec(apply_overrides(kSamples, changes).value());
    return spec ? "" : describe(spec.error());
}

TEST(SampleRules, ASpecOfSamplesIsReadWrittenAndReadAgain) {
    const auto spec = parse_job_spec(kSamples);
    ASSERT_TRUE(spec) << describe(spec.error());
    EXPECT_EQ(spec->student.format, StudentFormat::torchscript);
    EXPECT_EQ(spec->student.dtype, Dtype::fp32) << "no machine decides it";
    EXPECT_EQ(spec->dataset.sequence_length, 1U);
    EXPECT_EQ(spec->teacher()->inputs, (std::vector<std::string>{"x", "z"}));
    ASSERT_EQ(spec->training.losses.size(), 2U);
    EXPECT_EQ(spec->training.losses[0].kind, TensorLoss::kl);
    EXPECT_EQ(name_at_teacher(spec->training.losses[0]), "y");
    EXPECT_EQ(spec->training.losses[0].temperature, 2);
    EXPECT_EQ(name_in_data(spec->training.losses[1]), "h");
    EXPECT_EQ(spec->training.losses[1].weight, 0.5);
    const auto again = parse_job_spec(to_json(*spec));
    ASSERT_TRUE(again) << describe(again.error());
    EXPECT_EQ(to_json(*again), to_json(*spec));
}

TEST(SampleRules, WhatIsMissingIsRequired) {
    for (const char* pointer : {"/student/inputs", "/student/outputs", "/training/losses", "/teacher/inputs",
                                "/teacher/outputs", "/student/model"}) {
        EXPECT_THAT(refusal({{pointer, "null"}}), HasSubstr(std::string(pointer) + ": ")) << pointer;
    }
    EXPECT_THAT(refusal({{"/student/inputs", "[]"}}), HasSubstr("/student/inputs: inputs is required"));
}

TEST(SampleRules, LanguageModelsAndSamplesAreNotMixed) {
    EXPECT_THAT(refusal({{"/dataset/format", "jsonl"}, {"/dataset/sequence_length", "8"}}),
                HasSubstr("/dataset/format: must be \"tensors\""));
    EXPECT_THAT(refusal({{"/student/format", "huggingface"}}),
                HasSubstr("/dataset/format: is \"tensors\", which takes /student/format \"torchscript\""));
    for (const auto& [pointer, value] : std::vector<Override>{{"/student/config", "{}"},
                                                              {"/student/lora", "{}"},
                                                              {"/student/tokenizer", "/t"},
                                                              {"/student/quantization", "ternary"},
                                                              {"/dataset/packing", "false"},
                                                              {"/dataset/sequence_length", "8"},
                                                              {"/teacher/top_k", "4"},
                                                              {"/training/batch_size", "auto"},
                                                              {"/training/beta", "0.5"},
                                                              {"/training/kd_ratio", "0.5"},
                                                              {"/training/temperature", "2"},
                                                              {"/training/gradient_checkpointing", "true"}}) {
        EXPECT_THAT(refusal({{pointer, value}}), HasSubstr(pointer + ": ")) << pointer;
    }
    EXPECT_EQ(refusal({{"/kind", "generate"}, {"/teacher/store", "/store"}}), "");
    EXPECT_THAT(refusal({{"/teacher/store", "/store"}, {"/teacher/store_format", "topk"}}),
                HasSubstr("/teacher/store_format: "));
    const auto of_tokens = [](const std::string& section, const std::string& more) {
        const std::string text = R"({"student": {"model": "m"}, "teacher": {"endpoints": ["http://a:1"]},
            "dataset": {"train": "t.jsonl", "sequence_length": 8}, "training": {"max_steps": 3}, "output": "o"})";
        const auto spec = parse_job_spec(apply_overrides(text, {{section, more}}).value());
        return spec ? "" : describe(spec.error());
    };
    EXPECT_THAT(of_tokens("/student/dtype", "fp64"), HasSubstr("/student/dtype: is fp64"));
    EXPECT_THAT(of_tokens("/student/inputs", R"(["x"])"), HasSubstr("/student/inputs: is for"));
    EXPECT_THAT(of_tokens("/teacher/module", "/t.pt"), HasSubstr("/teacher/module: "));
}

TEST(SampleRules, TheTermsNameWhatThereIs) {
    EXPECT_THAT(refusal({{"/training/losses/0/output", "q"}}),
                HasSubstr("/training/losses/0/output: is \"q\", which is not in /student/outputs"));
    EXPECT_THAT(refusal({{"/training/losses/0/target", "teacher.h"}}),
                HasSubstr("/training/losses/0/target: is \"teacher.h\", and \"h\" is not in /teacher/outputs"));
    EXPECT_THAT(refusal({{"/training/losses/0/target", "y"}}),
                HasSubstr("/training/losses/0/target: must be teacher.NAME"));
    EXPECT_THAT(refusal({{"/training/losses/0/kind", "klar"}}), HasSubstr("/training/losses/0/kind: "));
    EXPECT_THAT(refusal({{"/training/losses/1/temperature", "2"}}),
                HasSubstr("/training/losses/1/temperature: is for kl"));
    EXPECT_THAT(refusal({{"/training/losses/1/wait", "2"}}), HasSubstr("/training/losses/1/wait: "));
    EXPECT_THAT(refusal({{"/training/losses/1", "3"}}), HasSubstr("/training/losses/1: an object is expected"));
    EXPECT_THAT(refusal({{"/training/losses", "{}"}}), HasSubstr("/training/losses: an array of objects"));
    EXPECT_THAT(refusal({{"/training/losses/0/target", "data.y"}}),
                HasSubstr("/teacher: is given, but no target of /training/losses begins with \"teacher.\""));
    EXPECT_THAT(refusal({{"/teacher", "null"}}), HasSubstr("the spec has no teacher"));
    EXPECT_THAT(refusal({{"/teacher/endpoints", R"(["http://a:1"])"}}),
                HasSubstr("/teacher/module: give one of endpoints, model_dir and module"));
}

}  // namespace
}  // namespace distilld::api
