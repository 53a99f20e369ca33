#pragma once

#include <torch/torch.h>

#include "models/losses/distill_loss.hpp"
#include "pipeline/graph/student.hpp"

namespace distilld::models {

/// The losses of a step's micro-batches, added up on their device in the order in which they come, and read once.
class StepLosses {
  public:
    void add(const DistillLossScalars& of_micro_batch);

    /// With the norm of the step's gradients ([], fp64, of any device): one copy to the host, for which it waits.
    /// Finite when the losses and the norm are.
    [[nodiscard]] StepStats read(const torch::Tensor& gradient_norm) const;

  private:
    torch::Tensor sums_;  ///< [3] of loss, kd, ce; undefined: no micro-batch
};

}  // namespace distilld::models
