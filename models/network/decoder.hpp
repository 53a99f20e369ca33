#pragma once

#include <torch/torch.h>

#include <memory>

#include "models/network/causal_lm.hpp"

namespace distilld::models {

/// The decoder that `config` describes, assembled from norm, attention and mlp: the same function as transformers'
/// model of that family. Its groups are 0 = embedding, 1..L = layers, L + 1 = final norm (and untied head). Parameters
/// are declared, not allocated.
std::unique_ptr<CausalLm> make_decoder(ModelConfig config, ComputeDtype dtype, const torch::Device& device);

}  // namespace distilld::models
