#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <span>

namespace distilld::models {

/// √Σx² over all tensors, in fp64. On a CPU squares are added in blocks of fixed size and order, so that the value does
/// not depend on the number of threads; elsewhere by the device's reduction. Not finite when an element is not.
/// fp32 or fp64 tensors, all on one device. `max_threads` 0 = as many as libtorch computes with.
[[nodiscard]] double l2_norm(std::span<const torch::Tensor> tensors, int max_threads = 0);

/// The same as an fp64 scalar on their device, which is not waited for; 0 on the CPU without a tensor.
[[nodiscard]] torch::Tensor l2_norm_scalar(std::span<const torch::Tensor> tensors, int max_threads = 0);

/// Calls `run(begin, end)` for parts of [0, count) that do not overlap, at once on up to `max_threads` threads, of
/// which the caller is one; returns when all are done. `run` does not throw. Fewer threads when a part would fall below
/// `min_part`. libtorch's parallel_for is no help: it is serial in code that is not compiled for its OpenMP.
void run_in_parts(std::int64_t count, std::int64_t min_part, int max_threads,
                  const std::function<void(std::int64_t, std::int64_t)>& run);

}  // namespace distilld::models
