#pragma once

#include <boost/json/fwd.hpp>
#include <string_view>

#include "models/families/model_family.hpp"

namespace distilld::models {

/// GPT-2: learned positions, layer norms, a feed-forward network without a gate, one projection for queries, keys and
/// values, biases everywhere, weights as [inputs, outputs]; the head is tied unless tie_word_embeddings is false. Sizes
/// have the family's names (n_embd, n_layer, …) or those that transformers maps to them (hidden_size, …). Dropout
/// (embd_pdrop, attn_pdrop, resid_pdrop; default 0.1) applies in training. Refused by name: cross-attention,
/// activations other than gelu, gelu_new (gelu_fast, gelu_pytorch_tanh), relu and silu (swish), and sizes that GPT-2
/// does not have (intermediate_size, num_key_value_heads, head_dim, rope_…).
void parse_gpt2(JsonMembers& config, DecoderConfig& decoder);
void write_gpt2(const DecoderConfig& decoder, boost::json::object& config);

inline constexpr std::string_view kGpt2Fields[] = {
    "activation_function",
    "attn_pdrop",
    "embd_pdrop",
    "layer_norm_epsilon",
    "n_ctx",  // size of the mask in old files: n_positions
    "n_embd",
    "n_head",
    "n_inner",
    "n_layer",
    "n_positions",
    "reorder_and_upcast_attn",
    "resid_pdrop",
    "scale_attn_by_inverse_layer_idx",
    "scale_attn_weights",
    "summary_first_dropout",  // of another head, like the next three
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
};

inline constexpr DecoderNames kGpt2Names{
    .embedding = "transformer.wte",
    .layers = "transformer.h",
    .input_norm = "ln_1",
    .query = "attn.c_attn",
    .key = nullptr,
    .value = nullptr,
    .output = "attn.c_proj",
    .post_attention_norm = "ln_2",
    .gate = nullptr,
    .up = "mlp.c_fc",
    .down = "mlp.c_proj",
    .final_norm = "transformer.ln_f",
    .head = "lm_head",
    .ignored_suffixes = {".attn.bias", ".attn.masked_bias"},
    .positions = "transformer.wpe",
    .optional_prefix = "transformer.",
};

}  // namespace distilld::models
