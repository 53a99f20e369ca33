#pragma once

#include <torch/types.h>

/// Weights of -1, 0 and 1 with a scale, and 8-bit activations, as in BitNet b1.58 (Ma et al. 2024, arXiv 2402.17764,
/// §2) and transformers' AutoBitLinear. Backward ignores rounding (straight-through, Bengio et al. 2013, arXiv
/// 1308.3432).
namespace distilld::models {

struct TernaryWeight {
    torch::Tensor values;  ///< -1, 0 or 1, in the shape and dtype of the weight
    torch::Tensor scale;   ///< [] of its dtype: mean |W|, at least 1e-5. The weight is values · scale
};

/// round(W / scale), clamped to ±1. `weight` is fp32 or fp64; no gradient.
[[nodiscard]] TernaryWeight ternary_weight(const torch::Tensor& weight);

/// values · scale in `type`. Gradients pass to `weight` unchanged.
[[nodiscard]] torch::Tensor straight_through_ternary(const torch::Tensor& weight, torch::ScalarType type);

/// `input` [.., n] in 8 bits per number: round(x · s) / s with s = 127 / max |x| over the last dimension (at least
/// 1e-5). Computed in fp32 (fp64 for fp64), the result in the dtype of the input; gradients pass.
[[nodiscard]] torch::Tensor straight_through_int8(const torch::Tensor& input);

/// Four values per byte, as in transformers: for R rows, byte row r holds row i·R/4 + r, plus one, in its bits 2i and
/// 2i + 1. `values` [R, ..] of -1, 0, 1, R divisible by 4 -> [R / 4, ..] uint8.
[[nodiscard]] torch::Tensor pack_ternary(const torch::Tensor& values);

}  // namespace distilld::models
