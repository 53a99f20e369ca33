#pragma once

#include <torch/types.h>

#include <optional>

#include "models/kernels/bf16_blocks.hpp"

namespace distilld::kernels {

/// Whether few_rows_product() takes this weight: a contiguous matrix on a CPU, in fp32, bf16 or fp64.
[[nodiscard]] bool takes_few_rows(const torch::Tensor& weight);

/// x·Wᵀ + b for x [.., K], W [M, K] and b [M] of one dtype -> [.., M], summed in fp32 (fp64 for fp64). A row's bits
/// depend neither on the other rows nor on the number of threads; those of fp32 and fp64 are the same on every
/// processor, and those of bf16 on all with AMX, on all others with AVX512-BF16, and on the rest. For a few rows: it
/// reads the weight once, where a library's product copies it into blocks first. `instructions`: at most those of this
/// processor; other dtypes do not use them.
[[nodiscard]] torch::Tensor few_rows_product(const torch::Tensor& x, const torch::Tensor& weight,
                                             const std::optional<torch::Tensor>& bias,
                                             Bf16Instructions instructions = bf16_instructions());

}  // namespace distilld::kernels
