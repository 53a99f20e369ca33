#pragma once

#include <boost/json/fwd.hpp>

#include "models/families/model_family.hpp"

namespace distilld::models {

/// Mistral: Llama without biases, with a sliding window (arXiv 2310.06825) unless sliding_window is null. Tensors are
/// called as in Llama.
void parse_mistral(JsonMembers& config, DecoderConfig& decoder);
void write_mistral(const DecoderConfig& decoder, boost::json::object& config);

inline constexpr std::string_view kMistralFields[] = {"hidden_act", "rms_norm_eps", "sliding_window"};

}  // namespace distilld::models
