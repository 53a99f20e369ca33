#pragma once

#include <torch/types.h>

#include <memory>
#include <vector>

#include "models/network/causal_lm.hpp"

namespace distilld::models {

/// The decoder that `config` describes, assembled from norm, attention and mlp: the same function as transformers'
/// model of that family. Its groups are 0 = embedding, 1..L = layers, L + 1 = final norm (and untied head). Parameters
/// are declared, not allocated. Layers are distributed over `devices` (at least one) in order, with about the same
/// number of weights on each; the embedding is on the first, the final norm and an untied head on the last.
std::unique_ptr<CausalLm> make_decoder(ModelConfig config, ComputeDtype dtype,
                                       const std::vector<torch::Device>& devices);

}  // namespace distilld::models
