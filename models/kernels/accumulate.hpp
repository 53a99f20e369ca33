#pragma once

#include <torch/torch.h>

namespace distilld::kernels {

/// total += addition, where `total` is fp32 and `addition` bf16, of the same shape; both contiguous and on the CPU. One
/// pass over memory: libtorch's addition of two dtypes converts into a tensor of its own first. The bits are the same.
void add_converted(torch::Tensor& total, const torch::Tensor& addition);

}  // namespace distilld::kernels
