#pragma once

#include <torch/torch.h>

#include "models/network/parameter.hpp"

namespace distilld::models {

/// The rows of `table` [V, H] that `ids` (int64, any shape) name: [..., H] in the table's dtype. Where the table
/// learns, backward adds the gradients of the rows that were looked up to its .grad by index: no [V, H] tensor is made,
/// and none passed over, but the one that collects a step's gradients. Bits of .grad are those of at::embedding's
/// backward, but for the sign of zeros.
[[nodiscard]] torch::Tensor look_up(const Parameter& table, const torch::Tensor& ids);

}  // namespace distilld::models
