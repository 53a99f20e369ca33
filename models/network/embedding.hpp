#pragma once

#include <torch/types.h>

#include "models/network/parameter.hpp"

namespace distilld::models {

/// The rows of `table` [V, H] that `ids` (int64, any shape) name: [..., H] in the table's dtype. If the table is
/// trained, backward adds the gradients of the used rows to its .grad by index, so .grad is the only [V, H] tensor. The
/// bits of .grad equal those of at::embedding's backward except for the sign of zeros.
[[nodiscard]] torch::Tensor look_up(const Parameter& table, const torch::Tensor& ids);

}  // namespace distilld::models
