#include "models/families/model_family.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "models/families/config_json.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld::models {
namespace {

using test::TemporaryFolder;
using test::write_bytes;

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

DecoderConfig parse(std::string_view json) {
    return parse_model_config(json, {}).value().decoder;
}

Result<DecoderConfig> merge(std::string_view base, std::string_view override_json, const JsonPlace& place = {}) {
    const auto merged = merge_config_json(base, place, override_json, place);
    if (!merged) {
        return merged.error();
    }
    const auto config = parse_model_config(*merged, place);
    if (!config) {
        return config.error();
    }
    return config->decoder;
}

std::string parse_error(std::string_view json) {
    const auto config = parse_model_config(json, {"", "/student/config"});
    if (config) {
        return {};
    }
    EXPECT_EQ(config.error().kind, ErrorKind::invalid_input);
    EXPECT_THAT(config.error().message, testing::StartsWith("/student/config"));
    return config.error().message;
}

TEST(LlamaConfig, DefaultsAreThoseOfTransformers) {
    const auto config = parse("{}");
    EXPECT_EQ(config.vocab_size, 32000);
    EXPECT_EQ(config.hidden_size, 4096);
    EXPECT_EQ(config.num_key_value_heads, 32);
    EXPECT_EQ(config.head_dim, 128);
    EXPECT_EQ(config.norm_epsilon, 1e-6);
    EXPECT_EQ(config.rope_theta, 10000.0);
    EXPECT_EQ(config.bos_token_id, 1);
    EXPECT_THAT(config.eos_token_ids, ElementsAre(2));
    EXPECT_EQ(config.pad_token_id, std::nullopt);
}

TEST(LlamaConfig, ReadsBothGenerationsOfRopeFields) {
    const auto v4 = parse(R"({"rope_theta": 500000.0, "rope_scaling": null})");
    const auto v5 = parse(R"({"rope_parameters": {"rope_theta": 500000, "rope_type": "default"}})");
    EXPECT_EQ(v4.rope_theta, 500000.0);
    EXPECT_EQ(v5.rope_theta, 500000.0);
    EXPECT_FALSE(v4.rope_scaling || v5.rope_scaling);

    const auto v4_scaled = parse(R"({"rope_theta": 500000.0, "rope_scaling": {"factor": 32.0,
        "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 1024,
        "rope_type": "llama3"}})");
    ASSERT_TRUE(v4_scaled.rope_scaling);
    EXPECT_EQ(std::get<Llama3RopeScaling>(*v4_scaled.rope_scaling).factor, 32.0);
    EXPECT_EQ(std::get<Llama3RopeScaling>(*v4_scaled.rope_scaling).original_max_position_embeddings, 1024);
    EXPECT_EQ(v4_scaled.rope_theta, 500000.0);
}

TEST(LlamaConfig, DerivesWhatIsAbsent) {
    const auto config = parse(R"({"hidden_size": 64, "num_attention_heads": 4})");
    EXPECT_EQ(config.num_key_value_heads, 4);
    EXPECT_EQ(config.head_dim, 16);
    const auto given = parse(R"({"hidden_size": 60, "num_attention_heads": 8, "head_dim": 16,
        "num_key_value_heads": 2, "eos_token_id": [3, 4], "bos_token_id": null, "pad_token_id": -1})");
    EXPECT_EQ(given.head_dim, 16);
    EXPECT_THAT(given.eos_token_ids, ElementsAre(3, 4));
    EXPECT_EQ(given.bos_token_id, std::nullopt);
    EXPECT_EQ(given.pad_token_id, std::nullopt);
    EXPECT_THAT(parse(R"({"eos_token_id": null})").eos_token_ids, IsEmpty());
}

TEST(LlamaConfig, RefusesByName) {
    EXPECT_THAT(parse_error(""), HasSubstr("is empty"));
    EXPECT_THAT(parse_error("{"), HasSubstr("not JSON"));
    EXPECT_THAT(parse_error("3"), HasSubstr("not a JSON object"));
    EXPECT_THAT(
        parse_error(R"({"model_type": "gemma"})"),
        HasSubstr(
            "/model_type: is \"gemma\"; only \"llama\", \"gpt2\", \"mistral\", \"qwen2\", \"qwen3\" are supported"));
    EXPECT_THAT(parse_error(R"({"hidden_act": "gelu"})"), HasSubstr("/student/config/hidden_act: "));
    EXPECT_THAT(parse_error(R"({"quantization_config": {}})"), HasSubstr("/student/config/quantization_config: "));
    EXPECT_THAT(parse_error(R"({"vocab_size": 0})"), HasSubstr("/vocab_size: is 0, a whole number from 1 to"));
    EXPECT_THAT(parse_error(R"({"hidden_size": -5})"), HasSubstr("/hidden_size: is -5"));
    EXPECT_THAT(parse_error(R"({"hidden_size": "64"})"), HasSubstr("/hidden_size: is \"64\""));
    EXPECT_THAT(parse_error(R"({"hidden_size": 64.5})"), HasSubstr("/student/config/hidden_size: "));
    EXPECT_THAT(parse_error(R"({"intermediate_size": 1e300})"), HasSubstr("/student/config/intermediate_size: "));
    EXPECT_THAT(parse_error(R"({"num_hidden_layers": 0})"), HasSubstr("/student/config/num_hidden_layers: "));
    EXPECT_THAT(parse_error(R"({"num_hidden_layers": 18446744073709551615})"), HasSubstr("/num_hidden_layers: is 184"));
    EXPECT_THAT(parse_error(R"({"hidden_size": 65, "num_attention_heads": 4})"),
                HasSubstr("/hidden_size: is 65, which num_attention_heads 4 does not divide"));
    EXPECT_THAT(parse_error(R"({"num_attention_heads": 8, "num_key_value_heads": 3})"),
                HasSubstr("/num_key_value_heads: is 3, which does not divide num_attention_heads 8"));
    EXPECT_THAT(parse_error(R"({"head_dim": 7})"), HasSubstr("/head_dim: is 7"));
    EXPECT_THAT(parse_error(R"({"rms_norm_eps": -1e-6})"), HasSubstr("/student/config/rms_norm_eps: "));
    EXPECT_THAT(parse_error(R"({"rope_theta": 0})"), HasSubstr("/student/config/rope_theta: "));
    EXPECT_THAT(parse_error(R"({"tie_word_embeddings": 1})"), HasSubstr("/tie_word_embeddings: is 1, true or false"));
    EXPECT_THAT(parse_error(R"({"eos_token_id": "x"})"), HasSubstr("/student/config/eos_token_id: "));
    EXPECT_THAT(parse_error(R"({"bos_token_id": [1]})"), HasSubstr("/student/config/bos_token_id: "));
    EXPECT_THAT(parse_error(R"({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}})"),
                HasSubstr("/rope_parameters/rope_type: is \"dynamic\"; only \"default\", \"linear\", "
                          "\"llama3\" and \"yarn\" are supported"));
    EXPECT_THAT(parse_error(R"({"rope_scaling": {"type": "longrope", "factor": 2.0}})"),
                HasSubstr("/rope_scaling/rope_type: is \"longrope\""));
    EXPECT_THAT(parse_error(R"({"rope_scaling": {"type": "linear"}})"), HasSubstr("/rope_scaling/factor: is missing"));
    EXPECT_THAT(parse_error(R"({"rope_scaling": {"rope_type": "llama3", "factor": 2.0}})"),
                HasSubstr("/rope_scaling/low_freq_factor: is missing"));
    EXPECT_THAT(parse_error(R"({"rope_scaling": 3})"), HasSubstr("/rope_scaling: is 3"));
    EXPECT_THAT(parse_error(R"({"partial_rotary_factor": 0.5})"), HasSubstr("/student/config/partial_rotary_factor: "));
    EXPECT_THAT(parse_error(R"({"vocab_size": 16777216, "hidden_size": 16777216})"), HasSubstr("1e13 parameters"));
}

TEST(LlamaConfig, MergePutsTheOverrideOnTopAndRederivesSizes) {
    const std::string base = R"({"model_type": "llama", "hidden_size": 256, "num_attention_heads": 8,
        "num_key_value_heads": 4, "head_dim": 32, "vocab_size": 1000, "num_hidden_layers": 6,
        "rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"}})";
    const auto smaller = merge(base, R"({"hidden_size": 128, "num_hidden_layers": 2})").value();
    EXPECT_EQ(smaller.hidden_size, 128);
    EXPECT_EQ(smaller.num_hidden_layers, 2);
    EXPECT_EQ(smaller.head_dim, 16);
    EXPECT_EQ(smaller.num_key_value_heads, 4);
    EXPECT_EQ(smaller.vocab_size, 1000);
    EXPECT_EQ(smaller.rope_theta, 500000.0);
    const auto heads = merge(base, R"({"num_attention_heads": 2})").value();
    EXPECT_EQ(heads.num_key_value_heads, 2);
    EXPECT_EQ(heads.head_dim, 128);
    EXPECT_EQ(merge(base, R"({"rope_theta": 1e4})").value().rope_theta, 1e4);
    EXPECT_EQ(merge(base, R"({"hidden_size": 256})").value().head_dim, 32);
    EXPECT_EQ(merge(base, "").value().hidden_size, 256);
    EXPECT_EQ(merge("", R"({"hidden_size": 64})").value().hidden_size, 64);
    EXPECT_THAT(merge(base, R"({"hidden_size": 0})", {"", "/student/config"}).error().message,
                HasSubstr("/student/config/hidden_size: is 0"));
}

TEST(LlamaConfig, WritesWhatItReadsAndKeepsUnknownFields) {
    ModelConfig config = parse_model_config(R"({"hidden_size": 64, "num_attention_heads": 4, "vocab_size": 99,
        "rms_norm_eps": 1e-5, "rope_theta": 5e5, "tie_word_embeddings": true, "eos_token_id": [5, 6],
        "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 512}})",
                                            {})
                             .value();
    config.source_json = R"({"hidden_size": 3, "my_own_field": {"a": [1, 2]}})";
    const auto text = to_config_json(config, "bfloat16");
    const ModelConfig again = parse_model_config(text, {}).value();
    EXPECT_EQ(again.decoder.hidden_size, 64);
    EXPECT_EQ(again.decoder.vocab_size, 99);
    EXPECT_EQ(again.decoder.norm_epsilon, 1e-5);
    EXPECT_EQ(again.decoder.rope_theta, 5e5);
    EXPECT_TRUE(again.decoder.tie_word_embeddings);
    EXPECT_THAT(again.decoder.eos_token_ids, ElementsAre(5, 6));
    ASSERT_TRUE(again.decoder.rope_scaling);
    EXPECT_EQ(std::get<Llama3RopeScaling>(*again.decoder.rope_scaling).original_max_position_embeddings, 512);
    const auto json = boost::json::parse(text).as_object();
    EXPECT_EQ(json.at("my_own_field").at("a").at(1).as_int64(), 2);
    EXPECT_EQ(json.at("model_type").as_string(), "llama");
    EXPECT_EQ(json.at("torch_dtype").as_string(), "bfloat16");
    EXPECT_EQ(json.at("rope_parameters").at("rope_theta").to_number<double>(), 5e5);
    EXPECT_EQ(json.at("rope_scaling").at("rope_type").as_string(), "llama3");
    // Written again from itself it does not change.
    EXPECT_EQ(to_config_json(again, "bfloat16"), text);
}

std::vector<std::string> warnings_of(std::string_view json) {
    return parse_model_config(json, {"config.json", ""}).value().warnings;
}

// The form of HuggingFaceTB/SmolLM3-3B's config.json, small, with the model_type that lets it pass.
constexpr std::string_view kSmollm3 = R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "bos_token_id": 128000, "eos_token_id": 128012, "hidden_act": "silu", "hidden_size": 64,
    "initializer_range": 0.02, "intermediate_size": 176, "layer_types": ["full_attention", "full_attention"],
    "max_position_embeddings": 65536, "max_window_layers": 28, "mlp_bias": false, "model_type": "llama",
    "no_rope_layer_interval": 4, "no_rope_layers": [1, 0], "num_attention_heads": 4, "num_hidden_layers": 2,
    "num_key_value_heads": 2, "pad_token_id": 128004, "pretraining_tp": 2, "rms_norm_eps": 1e-06, "rope_scaling": null,
    "rope_theta": 5000000.0, "sliding_window": null, "torch_dtype": "bfloat16", "transformers_version": "4.54.0.dev0",
    "use_cache": false, "use_sliding_window": false, "vocab_size": 128256})";

TEST(LlamaConfig, FieldsOfOtherFamiliesThatChangeTheFunctionAreRefused) {
    EXPECT_THAT(parse_error(kSmollm3),
                HasSubstr("/student/config/no_rope_layers: is [1,0], which changes what the network computes"));
    std::string same(kSmollm3);
    same.replace(same.find("[1, 0]"), 6, "[1, 1]");
    EXPECT_EQ(parse_error(same), "");
    EXPECT_THAT(warnings_of(same), IsEmpty());
    for (const char* field :
         {R"("layer_types": ["sliding_attention"])", R"("sliding_window": 4096)", R"("logits_scaling": 8)",
          R"("final_logit_softcapping": 30.0)", R"("use_qk_norm": true)", R"("qk_norm": true)",
          R"("num_local_experts": 8)", R"("no_rope_layer_interval": 4)", R"("residual_multiplier": 0.22)",
          R"("attention_dropout": 0.1)", R"("hidden_activation": "gelu_pytorch_tanh")", R"("is_causal": false)"}) {
        const std::string text(field);
        EXPECT_THAT(parse_error("{" + text + "}"),
                    HasSubstr("/student/config/" + text.substr(1, text.find(':') - 2) + ": is "))
            << field;
    }
    for (const char* field :
         {R"("sliding_window": 4096, "use_sliding_window": false)", R"("logits_scaling": 1.0)",
          R"("layer_types": ["full_attention"])", R"("qk_norm": false)", R"("num_local_experts": 0)",
          R"("is_causal": true)", R"("final_logit_softcapping": null)", R"("position_embedding_type": "rope")"}) {
        EXPECT_EQ(parse_error("{" + std::string(field) + "}"), "");
    }
}

TEST(LlamaConfig, WhatItReadsItselfIsNotAskedToBeNeutral) {
    EXPECT_TRUE(parse(R"({"attention_bias": true, "mlp_bias": true})").mlp_bias);
}

TEST(LlamaConfig, UnknownFieldsAreWarnedOf) {
    EXPECT_THAT(warnings_of("{}"), IsEmpty());
    EXPECT_THAT(warnings_of(R"({"colour": "blue", "_commit_hash": "abc", "use_cache": true, "speed": 3})"),
                ElementsAre("config.json: unknown and ignored: colour, speed"));
    EXPECT_THAT(warnings_of(R"({"architectures": ["MistralForCausalLM"]})"),
                ElementsAre(HasSubstr("config.json: /architectures: is [\"MistralForCausalLM\"]; it is taken for "
                                      "[\"LlamaForCausalLM\"]")));
    EXPECT_THAT(warnings_of(to_config_json(parse_model_config("{}", {}).value(), "float32")), IsEmpty());
}

TEST(LlamaConfig, SpecialTokensGoIntoBothFiles) {
    ModelConfig config = parse_model_config("{}", {}).value();
    set_special_tokens(config, {std::nullopt, {256}, std::nullopt});
    auto written = boost::json::parse(to_config_json(config, "float32")).as_object();
    EXPECT_TRUE(written.at("bos_token_id").is_null());
    EXPECT_EQ(written.at("eos_token_id").as_int64(), 256);
    auto generation = boost::json::parse(to_generation_config_json(config)).as_object();
    EXPECT_EQ(generation.at("eos_token_id").as_int64(), 256);
    EXPECT_FALSE(generation.contains("bos_token_id"));
    config.source_generation_json = R"({"temperature": 0.6, "bos_token_id": 1, "eos_token_id": 2})";
    set_special_tokens(config, {7, {8, 9}, 10});
    generation = boost::json::parse(to_generation_config_json(config)).as_object();
    EXPECT_EQ(boost::json::serialize(generation.at("eos_token_id")), "[8,9]");
    EXPECT_EQ(generation.at("bos_token_id").as_int64(), 7);
    EXPECT_EQ(generation.at("pad_token_id").as_int64(), 10);
    EXPECT_EQ(generation.at("temperature").to_number<double>(), 0.6);
}

TEST(LlamaConfig, ReadsAFolder) {
    const TemporaryFolder folder;
    EXPECT_THAT(read_model_config(folder.path()).error().message, HasSubstr("config.json: cannot open"));
    write_bytes(folder / "config.json", R"({"hidden_size": 0})");
    EXPECT_THAT(read_model_config(folder.path()).error().message, HasSubstr("config.json: /hidden_size: is 0"));
}

}  // namespace
}  // namespace distilld::models
