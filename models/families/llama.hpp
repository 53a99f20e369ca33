#pragma once

#include <boost/json/fwd.hpp>

#include "models/families/model_family.hpp"

namespace distilld::models {

/// Llama: RMS norms, rotary positions (plain, linear, Llama 3.1's or yarn), grouped-query attention, SwiGLU;
/// attention_bias adds a bias to all four projections. Refused by name: hidden_act other than "silu", other rope types,
/// quantized weights.
void parse_llama(JsonMembers& config, DecoderConfig& decoder);
void write_llama(const DecoderConfig& decoder, boost::json::object& config);

inline constexpr std::string_view kLlamaFields[] = {"attention_bias", "hidden_act", "mlp_bias", "rms_norm_eps"};

inline constexpr DecoderNames kLlamaNames{
    .embedding = "model.embed_tokens",
    .layers = "model.layers",
    .input_norm = "input_layernorm",
    .query = "self_attn.q_proj",
    .key = "self_attn.k_proj",
    .value = "self_attn.v_proj",
    .output = "self_attn.o_proj",
    .post_attention_norm = "post_attention_layernorm",
    .gate = "mlp.gate_proj",
    .up = "mlp.up_proj",
    .down = "mlp.down_proj",
    .final_norm = "model.norm",
    .head = "lm_head",
    .ignored_suffixes = {"rotary_emb.inv_freq"},
};

}  // namespace distilld::models
