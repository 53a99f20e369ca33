#pragma once

#include <torch/types.h>

#include "models/serving/served_head.hpp"

namespace distilld::models {

/// The file of a weight [V, H] in f32, bf16 or f16 on any device. Values are exact: an fp32 weight that was read from
/// bf16 or fp16 is sent in that dtype, in half the bytes. Uses the weight's own memory if it is on the CPU in that
/// dtype, else a copy on the host. Call on the tensors' thread.
ServedHead make_served_head(const torch::Tensor& weight);

}  // namespace distilld::models
