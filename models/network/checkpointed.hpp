#pragma once

#include <torch/types.h>

#include <functional>

namespace distilld::models {

/// run(input) with gradient checkpointing (arXiv 1604.06174): forward keeps only the input, and backward computes the
/// rest again. Gradients equal those of run(input) bit for bit: backward passes on those of `input` and adds those of
/// the parameters in `run` to their .grad. `run` is called twice, the second time before those parameters change; it
/// must compute the same both times, and is kept until backward is done. Its parameters are trained even if `input`
/// needs no gradient.
[[nodiscard]] torch::Tensor checkpointed(std::function<torch::Tensor(const torch::Tensor&)> run,
                                         const torch::Tensor& input);

}  // namespace distilld::models
