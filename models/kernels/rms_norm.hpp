#pragma once

#include <torch/types.h>

namespace distilld::kernels {

/// What a root mean square norm keeps and returns.
struct NormedRows {
    torch::Tensor stream;  ///< [n, H] what was normed: the input, plus the addition if there is one
    torch::Tensor normed;  ///< [n, H] round(stream · scale) · weight
    torch::Tensor scale;   ///< [n] 1 / √(mean(stream²) + ε), in fp32 (fp64 for fp64)
};

/// The norm of `input` + `addition` (undefined: of `input`) in one pass over memory. `input` and `addition` are [n, H],
/// contiguous, on the CPU, in fp32, bf16 or fp64; `weight` [H] has their dtype. Each result is rounded as transformers
/// does: the sum, the normed value and its product with the weight.
[[nodiscard]] NormedRows rms_norm(const torch::Tensor& input, const torch::Tensor& addition,
                                  const torch::Tensor& weight, double epsilon);

/// Gradients of the norm.
struct NormGradients {
    torch::Tensor stream;  ///< [n, H] in the dtype of `stream`
    torch::Tensor weight;  ///< [H] in fp32 (fp64); undefined unless requested
};

/// `gradient` [n, H] is that of `normed`; `passed` [n, H] (may be undefined) comes back along the stream and is added.
/// The weight's gradient is summed in fp64, over blocks of 64 rows and then over the blocks in order, so that no bit
/// depends on the number of threads.
[[nodiscard]] NormGradients rms_norm_backward(const torch::Tensor& gradient, const torch::Tensor& passed,
                                              const torch::Tensor& stream, const torch::Tensor& scale,
                                              const torch::Tensor& weight, bool with_weight);

}  // namespace distilld::kernels
