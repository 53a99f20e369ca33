#pragma once

#include <torch/types.h>

#include <utility>

namespace distilld::kernels {

/// silu(gate) · up, where silu(x) = x / (1 + e^−x) (SwiGLU, arXiv 2002.05202). Both have the same shape and dtype
/// (fp32, bf16 or fp64), are contiguous and on the CPU. silu(gate) is rounded to the dtype, and so is the product.
[[nodiscard]] torch::Tensor silu_gated(const torch::Tensor& gate, const torch::Tensor& up);

/// The gradients of `gate` and `up`, given that of the result.
[[nodiscard]] std::pair<torch::Tensor, torch::Tensor> silu_gated_backward(const torch::Tensor& gradient,
                                                                          const torch::Tensor& gate,
                                                                          const torch::Tensor& up);

}  // namespace distilld::kernels
