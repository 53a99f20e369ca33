#pragma once

#include <torch/types.h>

#include "models/kernels/bf16_blocks.hpp"

namespace distilld::kernels {

/// Whether this processor has the instructions, and the tensors are bf16 on the CPU with contiguous heads of at most
/// 256 numbers.
[[nodiscard]] bool takes_causal_attention(const torch::Tensor& query, const torch::Tensor& key,
                                          const torch::Tensor& value);

struct AttendedHeads {
    torch::Tensor out;       ///< [B, heads, T, D]; in memory, positions come before heads
    torch::Tensor log_sums;  ///< [B, heads, T] fp32: log Σ exp(scale · score)
};

/// Softmax(scale · Q Kᵀ) V over the positions up to each one, in bf16 with fp32 sums: [B, heads, T, D], keys and values
/// [B, key heads, T, D]. A row's bits depend on nothing but its own row and earlier positions, and on `instructions`.
[[nodiscard]] AttendedHeads causal_attention(const torch::Tensor& query, const torch::Tensor& key,
                                             const torch::Tensor& value, double scale,
                                             Bf16Instructions instructions = bf16_instructions());

struct AttentionGradients {
    torch::Tensor query;
    torch::Tensor key;
    torch::Tensor value;
};

/// `gradient` is that of `attended.out`. Gradients are laid out as that, too.
[[nodiscard]] AttentionGradients causal_attention_backward(const torch::Tensor& gradient, const torch::Tensor& query,
                                                           const torch::Tensor& key, const torch::Tensor& value,
                                                           const AttendedHeads& attended, double scale,
                                                           Bf16Instructions instructions = bf16_instructions());

}  // namespace distilld::kernels
