#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace distilld::models {

/// √Σx² over all tensors, in fp64. On a CPU, squares are added in blocks of fixed size and order, so that the value
/// does not depend on the number of threads; elsewhere, the device reduces. Not finite if an element is not. fp32 or
/// fp64 tensors, all on one device. `max_threads` 0 = as many as libtorch computes with.
[[nodiscard]] double l2_norm(std::span<const torch::Tensor> tensors, int max_threads = 0);

/// Σx² of each tensor, in fp64: on a CPU, l2_norm() adds them in their order; elsewhere, it lets the device sum them.
[[nodiscard]] std::vector<double> squared_norms(std::span<const torch::Tensor> tensors, int max_threads);

/// l2_norm() as an fp64 scalar on the tensors' device, without waiting; without tensors, 0 on the CPU.
[[nodiscard]] torch::Tensor l2_norm_scalar(std::span<const torch::Tensor> tensors, int max_threads = 0);

/// Calls `run(begin, end)` for disjoint parts of [0, count) in parallel on up to `max_threads` threads, including the
/// caller's; returns when all are done. `run` must not throw. Uses fewer threads if a part would be below `min_part`.
/// (libtorch's parallel_for is serial in code that is not compiled for its OpenMP.)
void run_in_parts(std::int64_t count, std::int64_t min_part, int max_threads,
                  const std::function<void(std::int64_t, std::int64_t)>& run);

}  // namespace distilld::models
