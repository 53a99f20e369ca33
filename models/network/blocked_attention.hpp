#pragma once

#include <torch/torch.h>

namespace distilld::models {

/// Whether blocked_attention() is faster than libtorch's flash attention for this tensor: bf16 on a CPU with
/// AVX512-BF16 but without AMX, where flash attention emulates bf16 (docs/decisions/0010-attention-by-products.md).
[[nodiscard]] bool prefers_blocked_attention(const torch::Tensor& query);

/// Causal attention by matrix products over blocks of 128 queries, each with the keys up to its last query. `query`
/// [B, heads, T, D] and fewer heads of `key` and `value` [B, key heads, T, D], in one dtype, on the CPU -> [B, heads,
/// T, D]. Scores and weights are rounded to the dtype, as in transformers' eager attention; the softmax is computed in
/// fp32 (fp64). Backward computes the weights of a block again, so that memory grows with T, not with T².
[[nodiscard]] torch::Tensor blocked_attention(const torch::Tensor& query, const torch::Tensor& key,
                                              const torch::Tensor& value, double scale);

}  // namespace distilld::models
