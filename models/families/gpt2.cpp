#include "models/families/gpt2.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <cstdint>
#include <iterator>
#include <string>

#include "models/families/decoder_fields.hpp"

namespace distilld::models {

namespace json = boost::json;

namespace {

/// A size: GPT-2's name, transformers' common name, and its member.
struct Size {
    std::string_view name;
    std::string_view common_name;
    std::int64_t DecoderConfig::* member;
    std::int64_t max;
};

constexpr Size kSizes[] = {
    {"n_embd", "hidden_size", &DecoderConfig::hidden_size, kMaxSize},
    {"n_layer", "num_hidden_layers", &DecoderConfig::num_hidden_layers, kMaxLayers},
    {"n_head", "num_attention_heads", &DecoderConfig::num_attention_heads, kMaxSize},
    {"n_positions", "max_position_embeddings", &DecoderConfig::max_position_embeddings, kMaxPositions},
};

/// Sizes of other families, which transformers' GPT-2 ignores.
constexpr std::string_view kForeign[] = {"head_dim",        "intermediate_size", "num_key_value_heads",
                                         "rope_parameters", "rope_scaling",      "rope_theta"};

struct ActivationName {
    std::string_view name;
    Activation activation;
};

/// The first row of an activation is the name that is written.
constexpr ActivationName kActivations[] = {
    {"gelu_new", Activation::gelu_tanh},
    {"gelu_fast", Activation::gelu_tanh},
    {"gelu_pytorch_tanh", Activation::gelu_tanh},
    {"gelu", Activation::gelu},
    {"relu", Activation::relu},
    {"silu", Activation::silu},
    {"swish", Activation::silu},
};

const ActivationName* find_activation(const json::value& value) {
    const auto* found =
        value.is_string() ? std::ranges::find(kActivations, std::string_view(value.get_string()), &ActivationName::name)
                          : std::end(kActivations);
    return found == std::end(kActivations) ? nullptr : found;
}

void read_sizes(JsonMembers& config, DecoderConfig& decoder) {
    for (const Size& size : kSizes) {
        std::int64_t common = decoder.*size.member;
        config.integer(size.common_name, common, std::int64_t{1}, size.max);
        decoder.*size.member = common;
        config.integer(size.name, decoder.*size.member, std::int64_t{1}, size.max);
        if (config.find(size.common_name) != nullptr && decoder.*size.member != common) {
            config.fail(size.common_name, "is " + std::to_string(common) + ", but " + std::string(size.name) +
                                              ", which means the same, is " + std::to_string(decoder.*size.member));
        }
    }
    for (const std::string_view name : kForeign) {
        if (config.find(name) != nullptr) {
            config.fail(name,
                        "is not a field of gpt2, whose sizes are n_embd, n_layer, n_head, n_positions and "
                        "n_inner");
        }
    }
    if (config.failed()) {
        return;
    }
    decoder.num_key_value_heads = decoder.num_attention_heads;
    if (decoder.hidden_size % decoder.num_attention_heads != 0) {
        config.fail("n_embd", "is " + std::to_string(decoder.hidden_size) + ", which n_head " +
                                  std::to_string(decoder.num_attention_heads) + " does not divide");
    }
    decoder.head_dim = decoder.hidden_size / decoder.num_attention_heads;
    decoder.intermediate_size = 4 * decoder.hidden_size;
    config.integer("n_inner", decoder.intermediate_size, std::int64_t{1}, kMaxSize);
}

void read_rate(JsonMembers& config, std::string_view name, double& rate) {
    config.real_from(name, rate, 0.0, true);
    if (!config.failed() && rate >= 1.0) {
        config.fail(name, "is " + JsonMembers::brief(*config.find(name)) + ", a number below 1 is expected");
    }
}

}  // namespace

void parse_gpt2(JsonMembers& config, DecoderConfig& decoder) {
    decoder.vocab_size = 50257;
    decoder.hidden_size = 768;
    decoder.num_hidden_layers = 12;
    decoder.num_attention_heads = 12;
    decoder.max_position_embeddings = 1024;
    decoder.norm_epsilon = 1e-5;
    decoder.tie_word_embeddings = true;
    decoder.query_key_value_bias = true;
    decoder.attention_output_bias = true;
    decoder.mlp_bias = true;
    decoder.norm = NormKind::layer;
    decoder.positions = PositionKind::learned;
    decoder.activation = Activation::gelu_tanh;
    decoder.gated_mlp = false;
    decoder.fused_query_key_value = true;
    decoder.transposed_linears = true;
    decoder.scaled_residual_init = true;
    decoder.dropout = {0.1, 0.1, 0.1};
    decoder.bos_token_id = 50256;
    decoder.eos_token_ids = {50256};
    read_common_fields(config, decoder);
    read_sizes(config, decoder);
    config.real_from("layer_norm_epsilon", decoder.norm_epsilon, 0.0, true);
    read_rate(config, "embd_pdrop", decoder.dropout.embedding);
    read_rate(config, "attn_pdrop", decoder.dropout.attention);
    read_rate(config, "resid_pdrop", decoder.dropout.residual);
    config.boolean("scale_attn_weights", decoder.scaled_scores);
    config.boolean("scale_attn_by_inverse_layer_idx", decoder.scores_scaled_by_layer);
    config.boolean("reorder_and_upcast_attn", decoder.scores_in_fp32);
    if (const json::value* name = config.find("activation_function")) {
        if (const ActivationName* known = find_activation(*name)) {
            decoder.activation = known->activation;
        } else {
            config.fail("activation_function", "is " + JsonMembers::brief(*name) +
                                                   "; only \"gelu\", \"gelu_new\", \"gelu_fast\", "
                                                   "\"gelu_pytorch_tanh\", \"relu\" and \"silu\" are supported");
        }
    }
    check_shape(config, decoder);
}

void write_gpt2(const DecoderConfig& decoder, json::object& config) {
    config["architectures"] = json::array{"GPT2LMHeadModel"};
    write_common_fields(decoder, config);
    for (const Size& size : kSizes) {
        config[size.name] = decoder.*size.member;
    }
    const json::value* inner = config.if_contains("n_inner");
    const bool says_inner = inner != nullptr && !inner->is_null();
    config["n_inner"] = says_inner || decoder.intermediate_size != 4 * decoder.hidden_size
                            ? json::value(decoder.intermediate_size)
                            : json::value(nullptr);
    // Keeps the source's name if it means the same activation.
    const json::value* name = config.if_contains("activation_function");
    const ActivationName* said = name == nullptr ? nullptr : find_activation(*name);
    if (said == nullptr || said->activation != decoder.activation) {
        config["activation_function"] =
            std::ranges::find(kActivations, decoder.activation, &ActivationName::activation)->name;
    }
    config["layer_norm_epsilon"] = decoder.norm_epsilon;
    config["embd_pdrop"] = decoder.dropout.embedding;
    config["attn_pdrop"] = decoder.dropout.attention;
    config["resid_pdrop"] = decoder.dropout.residual;
    config["scale_attn_weights"] = decoder.scaled_scores;
    config["scale_attn_by_inverse_layer_idx"] = decoder.scores_scaled_by_layer;
    config["reorder_and_upcast_attn"] = decoder.scores_in_fp32;
    config["add_cross_attention"] = false;
}

}  // namespace distilld::models
