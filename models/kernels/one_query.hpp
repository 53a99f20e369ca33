#pragma once

#include <torch/torch.h>

#include <vector>

namespace distilld::kernels {

/// What a query sees of its sequence.
struct SeenPositions {
    torch::Tensor keys;    ///< [key heads, n, D], n ≥ 1; positions and channels in rows of D
    torch::Tensor values;  ///< likewise
};

/// Attention of one query per sequence over all positions that it sees: query [N, heads, D] -> [N, heads · D], all on a
/// CPU in fp32, bf16 or fp64. Computed in fp32 (fp64 for fp64) up to the result. A row's bits depend neither on the
/// other rows nor on the number of threads, and are the same on every processor.
[[nodiscard]] torch::Tensor one_query_attention(const torch::Tensor& query, const std::vector<SeenPositions>& sequences,
                                                double scale);

}  // namespace distilld::kernels
