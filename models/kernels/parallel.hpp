#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>

namespace distilld::kernels {

/// Calls `work(begin, end)` for disjoint parts of [0, count) on libtorch's threads and returns when all are done. A
/// part has about `grain` items or more. Which parts there are depends on the number of threads: `work` must compute
/// each item in the same way in any part. What it throws is thrown here when all parts are done.
///
/// at::parallel_for would be serial here, because it is a template and this project is not compiled for OpenMP;
/// libtorch's iterator is compiled for it.
void in_parallel(std::int64_t count, std::int64_t grain,
                 const std::function<void(std::int64_t begin, std::int64_t end)>& work);

/// Items for a thread to be worth waking: `elements` per item, as many in all as ATen's own kernels want.
[[nodiscard]] std::int64_t grain_of(std::int64_t elements);

}  // namespace distilld::kernels
