#pragma once

#include <torch/types.h>

namespace distilld::kernels {

/// Adds the gradient of a micro-batch, complete, to `total` of dtype `type`; an undefined total becomes the gradient.
/// bf16 is added to fp32 on the CPU in one pass over memory, because libtorch's addition of two dtypes converts into a
/// tensor of its own first. The bits are the same. Compute thread, without autograd.
void accumulate(torch::Tensor& total, const torch::Tensor& gradient, torch::ScalarType type);

}  // namespace distilld::kernels
