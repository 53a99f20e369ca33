#pragma once

#include <torch/torch.h>

namespace distilld::models {

/// Neither NaN nor infinity among the elements. Any floating dtype and device; makes no copy of the tensor.
[[nodiscard]] bool all_finite(const torch::Tensor& tensor);

}  // namespace distilld::models
