#pragma once

#include <boost/json/fwd.hpp>

#include "models/families/llama.hpp"
#include "models/families/model_family.hpp"

namespace distilld::models {

/// Qwen 3, dense: Llama with an RMS norm over each head's queries and keys and a head_dim of its own; attention_bias
/// adds a bias to all four projections. A sliding window, which counts only with use_sliding_window, is refused:
/// published models have it switched off.
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
