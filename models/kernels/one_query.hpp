#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace distilld::kernels {

/// What a query sees of its sequence: positions [begin, length), and its own behind them.
struct SeenPositions {
    torch::Tensor keys;    ///< [key heads, capacity > length, D]; positions in rows of D
    torch::Tensor values;  ///< likewise
    std::int64_t begin = 0;
    std::int64_t length = 0;
};

/// Attention of one query per sequence, with the key and value of its position, which are written behind the others:
/// query [N, heads, D], key and value [N, key heads, D] with heads in rows of D -> [N, heads · D], all on a CPU in
/// fp32, bf16 or fp64. Computed in fp32 (fp64 for fp64) up to the result. A row's bits depend neither on the other rows
/// nor on the number of threads, and are the same on every processor.
[[nodiscard]] torch::Tensor one_query_attention(const torch::Tensor& query, const torch::Tensor& key,
                                                const torch::Tensor& value, const std::vector<SeenPositions>& sequences,
                                                double scale);

}  // namespace distilld::kernels
