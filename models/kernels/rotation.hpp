#pragma once

#include <torch/types.h>

namespace distilld::kernels {

/// Rotates the pairs (i, i + D/2) of `input` [B, T, heads, D] by the angles of their position: `cos` and `sin`
/// [T, D/2], in the dtype of `input` (fp32, bf16 or fp64); all contiguous and on the CPU. `direction` is 1, or −1 to
/// rotate back, which gives the gradient of the input from that of the result. Products and sums are rounded to the
/// dtype one by one, as transformers does.
[[nodiscard]] torch::Tensor rotated(const torch::Tensor& input, const torch::Tensor& cos, const torch::Tensor& sin,
                                    int direction);

}  // namespace distilld::kernels
