#pragma once

#include <torch/torch.h>

#include "models/losses/distill_loss.hpp"
#include "models/network/causal_lm.hpp"
#include "models/training/staging.hpp"

namespace distilld::models {

/// Forward, loss and backward of one micro-batch (at least one target): adds to the .grad of every parameter the
/// gradient of loss sum / batch.step_target_tokens. `before(g)` is called just before the first use of group g, and
/// once more for every group when forward is done, so that nothing older is left in .grad when this step's gradients
/// arrive. `options.gradient_scale` is set here. Does not wait for the device.
DistillLossScalars accumulate_gradients(CausalLm& network, const TensorBatch& batch, DistillLossOptions options,
                                        const CausalLm::BeforeGroup& before);

/// Held-out figures, no gradients: cross entropy of all targets of `batch`; of `answered`, the same micro-batch staged
/// with the teacher's targets at temperature 1, KL(teacher ‖ student) and agreement. `answered` is null where nobody
/// was asked, and `batch` itself where the teacher gave every position.
EvalStats evaluation_sums(CausalLm& network, const TensorBatch& batch, const TensorBatch* answered);

}  // namespace distilld::models
