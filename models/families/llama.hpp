#pragma once

#include <boost/json/fwd.hpp>
#include <string_view>

#include "models/families/model_family.hpp"

/// Llama and similar families. Their tensors have Llama's names.
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

/// Mistral: Llama without biases, with a sliding window (arXiv 2310.06825) unless sliding_window is null.
void parse_mistral(JsonMembers& config, DecoderConfig& decoder);
void write_mistral(const DecoderConfig& decoder, boost::json::object& config);

inline constexpr std::string_view kMistralFields[] = {"hidden_act", "rms_norm_eps", "sliding_window"};

/// Qwen 2 and 2.5: Llama with a bias on the projections of queries, keys and values. A sliding window (with
/// use_sliding_window) is refused: published models have it switched off.
void parse_qwen2(JsonMembers& config, DecoderConfig& decoder);
void write_qwen2(const DecoderConfig& decoder, boost::json::object& config);

inline constexpr std::string_view kQwen2Fields[] = {"hidden_act", "rms_norm_eps", "sliding_window"};

/// Qwen 3, dense: Llama with an RMS norm over each head's queries and keys and a head_dim of its own; attention_bias
/// adds a bias to all four projections. A sliding window (with use_sliding_window) is refused: published models have it
/// switched off.
void parse_qwen3(JsonMembers& config, DecoderConfig& decoder);
void write_qwen3(const DecoderConfig& decoder, boost::json::object& config);

inline constexpr std::string_view kQwen3Fields[] = {"attention_bias", "hidden_act", "rms_norm_eps", "sliding_window"};

inline constexpr DecoderNames kQwen3Names = [] {
    DecoderNames names = kLlamaNames;
    names.query_norm = "self_attn.q_norm";
    names.key_norm = "self_attn.k_norm";
    return names;
}();

}  // namespace distilld::models
