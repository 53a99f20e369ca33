#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <string>

#include "models/families/config_json.hpp"
#include "models/families/model_family.hpp"

namespace distilld::models {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// With these members beside model_type.
Result<ModelConfig> parse(const std::string& members) {
    return parse_model_config(R"({"model_type": "gpt2")" + (members.empty() ? "" : ", " + members) + "}",
                              {"", "/student/config"});
}

DecoderConfig decoder(const std::string& members) {
    return parse(members).value().decoder;
}

std::string refusal(const std::string& members) {
    const auto config = parse(members);
    return config ? "" : config.error().message;
}

TEST(Gpt2Config, DefaultsAreThoseOfTransformers) {
    const DecoderConfig config = decoder("");
    EXPECT_EQ(config.vocab_size, 50257);
    EXPECT_EQ(config.hidden_size, 768);
    EXPECT_EQ(config.num_hidden_layers, 12);
    EXPECT_EQ(config.num_attention_heads, 12);
    EXPECT_EQ(config.head_dim, 64);
    EXPECT_EQ(config.intermediate_size, 3072);
    EXPECT_EQ(config.max_position_embeddings, 1024);
    EXPECT_EQ(config.norm_epsilon, 1e-5);
    EXPECT_TRUE(config.tie_word_embeddings);
    EXPECT_EQ(config.dropout.embedding, 0.1);
    EXPECT_EQ(config.dropout.attention, 0.1);
    EXPECT_EQ(config.dropout.residual, 0.1);
    EXPECT_EQ(config.activation, Activation::gelu_tanh);
    EXPECT_EQ(config.bos_token_id, 50256);
    EXPECT_THAT(config.eos_token_ids, ElementsAre(50256));
}

TEST(Gpt2Config, SizesGoByBothTheirNames) {
    const DecoderConfig config = decoder(R"("hidden_size": 60, "num_attention_heads": 4, "n_layer": 3, "n_inner": 7)");
    EXPECT_EQ(config.hidden_size, 60);
    EXPECT_EQ(config.head_dim, 15) << "odd heads are none of a learned position's business";
    EXPECT_EQ(config.num_hidden_layers, 3);
    EXPECT_EQ(config.intermediate_size, 7);
    EXPECT_EQ(decoder(R"("n_embd": 60, "n_head": 4, "n_inner": null)").intermediate_size, 240);
    EXPECT_EQ(refusal(R"("n_embd": 96, "hidden_size": 96)"), "");
    EXPECT_THAT(refusal(R"("n_embd": 96, "hidden_size": 48)"),
                HasSubstr("/student/config/hidden_size: is 48, but n_embd, which means the same, is 96"));
}

TEST(Gpt2Config, RefusesByName) {
    for (const char* field :
         {R"("add_cross_attention": true)", R"("activation_function": "quick_gelu")", R"("activation_function": 3)",
          R"("intermediate_size": 512)", R"("head_dim": 32)", R"("num_key_value_heads": 2)", R"("rope_theta": 10000.0)",
          R"("attn_pdrop": 1.0)", R"("embd_pdrop": -0.1)", R"("resid_pdrop": "some")", R"("n_embd": 0)",
          R"("n_positions": 0)", R"("scale_attn_weights": 1)", R"("quantization_config": {})", R"("is_causal": false)",
          R"("attention_dropout": 0.1)", R"("sliding_window": 64)"}) {
        const std::string text(field);
        EXPECT_THAT(refusal(text), HasSubstr("/student/config/" + text.substr(1, text.find(':') - 2) + ": ")) << field;
    }
    EXPECT_THAT(refusal(R"("n_embd": 65, "n_head": 4)"), HasSubstr("n_embd: is 65, which n_head 4 does not divide"));
    EXPECT_THAT(refusal(R"("n_positions": 1073741824, "n_embd": 16777216, "n_head": 1)"), HasSubstr("1e13 parameters"));
    EXPECT_THAT(refusal(R"("activation_function": "mish")"), HasSubstr("\"gelu_new\""));
}

// openai-community/gpt2's own.
TEST(Gpt2Config, ThePublishedOneIsReadWithoutAWordAndWrittenAsItWas) {
    const std::string published = R"("activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
        "attn_pdrop": 0.1, "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-05, "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024,
        "resid_pdrop": 0.1, "summary_activation": null, "summary_first_dropout": 0.1, "summary_proj_to_labels": true,
        "summary_type": "cls_index", "summary_use_proj": true,
        "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}}, "vocab_size": 50257)";
    const ModelConfig config = parse(published).value();
    EXPECT_THAT(config.warnings, IsEmpty());
    const auto written = boost::json::parse(to_config_json(config, "float32")).as_object();
    const auto before = boost::json::parse("{" + published + "}").as_object();
    for (const auto& [name, value] : before) {
        EXPECT_EQ(boost::json::serialize(written.at(name)), boost::json::serialize(value)) << name;
    }
    EXPECT_EQ(written.at("model_type").as_string(), "gpt2");
    EXPECT_FALSE(written.contains("hidden_size"));
}

TEST(Gpt2Config, OneOfSeveralNamesForAnActivationStays) {
    for (const auto* name : {"gelu_new", "gelu_fast", "gelu_pytorch_tanh", "gelu", "relu", "silu", "swish"}) {
        const ModelConfig config = parse(R"("activation_function": ")" + std::string(name) + "\"").value();
        EXPECT_EQ(boost::json::parse(to_config_json(config, "float32")).at("activation_function").as_string(), name);
    }
    ModelConfig other = parse(R"("activation_function": "relu")").value();
    other.decoder.activation = Activation::gelu_tanh;
    EXPECT_EQ(boost::json::parse(to_config_json(other, "float32")).at("activation_function").as_string(), "gelu_new");
}

}  // namespace
}  // namespace distilld::models
