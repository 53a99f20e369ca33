#pragma once

#include <boost/json/fwd.hpp>

#include "models/families/model_family.hpp"

namespace distilld::models {

/// Qwen 2 and 2.5: Llama with a bias on the projections of queries, keys and values. Tensors are called as in Llama. A
/// sliding window, which counts only with use_sliding_window, is refused: published models have it switched off.
void parse_qwen2(JsonMembers& config, DecoderConfig& decoder);
void write_qwen2(const DecoderConfig& decoder, boost::json::object& config);

inline constexpr std::string_view kQwen2Fields[] = {"hidden_act", "rms_norm_eps", "sliding_window"};

}  // namespace distilld::models
