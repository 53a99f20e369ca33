#pragma once

#include <torch/types.h>

namespace distilld::kernels {

/// What the rows of a loss are compared with; all contiguous and on the CPU.
struct LossTargets {
    torch::Tensor labels;            ///< [n] int64
    torch::Tensor ids;               ///< [n, k] int64; undefined: cross entropy alone
    torch::Tensor probabilities;     ///< [n, k] of the ids, in fp32 (fp64 for fp64)
    torch::Tensor tail_probability;  ///< [n] of all other tokens
    torch::Tensor negative_entropy;  ///< [n] Σ p·log p over the k + 1 buckets
};

/// Factors of the gradient, and the temperature T of both distributions.
struct LossFactors {
    double ce = 0;  ///< of CE at temperature 1
    double kd = 0;  ///< of T²·KL(p‖q) over the k tokens and the rest as one bucket
    double temperature = 1;
};

/// Values of each row, [n] fp64. `ce` is undefined if T is not 1 and CE has no weight.
struct LossValues {
    torch::Tensor kl;
    torch::Tensor ce;
};

/// Turns `logits` [n, V] (fp32, bf16 or fp64, contiguous, on the CPU) into the gradient of the weighted loss with
/// respect to them, in place. A row is computed by one thread while it lies in its cache, in fp32 (fp64 for fp64); see
/// divergence.hpp for the formulas.
[[nodiscard]] LossValues topk_loss(torch::Tensor& logits, const LossTargets& targets, const LossFactors& factors);

}  // namespace distilld::kernels
