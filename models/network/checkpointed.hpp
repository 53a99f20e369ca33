#pragma once

#include <torch/torch.h>

#include <functional>

namespace distilld::models {

/// run(input), of which backward keeps the input alone and computes the rest again (gradient checkpointing, arXiv
/// 1604.06174). The gradients are those of run(input) bit for bit: those of `input` go on, those of the parameters that
/// `run` uses are added to their .grad when backward comes by. `run` is called twice, the second time before those
/// parameters change, has to compute the same both times, and is kept until backward is done; parameters in it learn
/// even where `input` needs no gradient.
[[nodiscard]] torch::Tensor checkpointed(std::function<torch::Tensor(const torch::Tensor&)> run,
                                         const torch::Tensor& input);

}  // namespace distilld::models
