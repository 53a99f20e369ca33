#pragma once

#include <torch/torch.h>

#include "models/serving/served_head.hpp"

namespace distilld::models {

/// The file of a weight [V, H] in f32, bf16 or f16 on any device. Values stay what they are: those of an fp32 weight
/// that was read from bf16 or fp16 are sent as such, in half the bytes. The weight's own memory where it is on the CPU
/// in that type, else a copy on the host. Thread of the tensors.
ServedHead make_served_head(const torch::Tensor& weight);

}  // namespace distilld::models
