#pragma once

#include <torch/torch.h>

/// Weights of -1, 0 and 1 with a scale, and activations of 8 bits, as BitNet b1.58 has them (Ma et al. 2024, arXiv
/// 2402.17764, §2) and transformers' AutoBitLinear computes them. Roundings are passed by in backward
/// (straight-through, Bengio et al. 2013, arXiv 1308.3432).
namespace distilld::models {

struct TernaryWeight {
    torch::Tensor values;  ///< -1, 0 or 1, in the shape and dtype of the weight
    torch::Tensor scale;   ///< [] of its dtype: mean |W|, at least 1e-5. The weight stands for values · scale
};

/// round(W / scale), cut to ±1. `weight` is fp32 or fp64; no gradient.
[[nodiscard]] TernaryWeight ternary_weight(const torch::Tensor& weight);

/// values · scale in `type`. Gradients go to `weight` as if it were that.
[[nodiscard]] torch::Tensor straight_through_ternary(const torch::Tensor& weight, torch::ScalarType type);

/// `input` [.., n] in 8 bits a number: round(x · s) / s with s = 127 / max |x| over the last dimension (at least 1e-5).
/// Computed in fp32 (fp64 for fp64), the result in the dtype of the input; gradients pass.
[[nodiscard]] torch::Tensor straight_through_int8(const torch::Tensor& input);

/// Four values a byte, as transformers packs them: of R rows, byte row r holds in its bits 2i and 2i + 1 row i·R/4 + r,
/// plus one. `values` [R, ..] of -1, 0, 1, R divisible by 4 -> [R / 4, ..] uint8.
[[nodiscard]] torch::Tensor pack_ternary(const torch::Tensor& values);

}  // namespace distilld::models
