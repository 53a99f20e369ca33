#pragma once

#include <torch/types.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "models/losses/distill_loss.hpp"
#include "models/network/causal_lm.hpp"
#include "models/optimizers/layered_optimizer.hpp"
#include "models/training/staging.hpp"
#include "pipeline/graph/student.hpp"

namespace distilld::models {

/// Forward, loss and backward of one micro-batch (at least one target): adds the gradient of loss sum /
/// batch.step_target_tokens to the gradient of every parameter. Calls `before(g)` just before the first use of group g,
/// and once more for every group when forward is done, so that nothing older is left in .grad when this step's
/// gradients arrive. Sets `options.gradient_scale`. Does not wait for the device. With tickets, several threads may be
/// in here at once: gradients are added in the tickets' order, and whoever ends the step calls complete() of that
/// order.
DistillLossScalars accumulate_gradients(CausalLm& network, const TensorBatch& batch, DistillLossOptions options,
                                        const CausalLm::BeforeGroup& before);

/// The group that the micro-batch's gradient is summed with first: as many groups as `training` says, of micro-batches
/// in their order.
[[nodiscard]] std::uint32_t gradient_group(const TrainingSpec& training, const MicroBatch& batch) noexcept;

/// Held-out figures, without gradients: the cross entropy of all targets of `batch`, and for `answered` KL(teacher ‖
/// student) and agreement. `answered` is the same micro-batch staged with the teacher's targets at temperature 1: null
/// if the teacher gave no answer, `batch` itself if the answer has every position.
EvalStats evaluation_sums(CausalLm& network, const TensorBatch& batch, const TensorBatch* answered);

/// The losses of a step's micro-batches, summed on their device in the order of their tickets and read once. add() may
/// be called by several threads.
class StepLosses {
  public:
    struct OfMicroBatch {
        std::uint32_t group = 0;  ///< gradient_group()
        torch::Tensor sums;       ///< [3] fp64: loss, kd, ce
    };

    void add(const Ticket& ticket, const DistillLossScalars& of_micro_batch);
    void add(std::uint64_t ticket, OfMicroBatch losses);
    /// In the order of the tickets, and none from now on.
    [[nodiscard]] std::vector<OfMicroBatch> take();
    void clear();

    /// Also reads the norm of the step's gradients ([], fp64, any device), in one copy to the host, and waits for it.
    /// The result is finite if the losses and the norm are.
    [[nodiscard]] StepStats read(const torch::Tensor& gradient_norm) const;

  private:
    std::mutex mutex_;
    std::map<std::uint64_t, OfMicroBatch> of_tickets_;
};

/// Updates the parameters with clipped gradients, or drops the gradients if losses or norm are not finite.
/// `others_have_gradients`: as in LayeredOptimizer::finish_step().
void update_parameters(const StepStats& stats, LayeredOptimizer& optimizer, double learning_rate, double max_grad_norm,
                       bool others_have_gradients = false);

/// Ends a step whose gradients are complete: reads and clears the losses, and updates the parameters.
StepStats close_step(StepLosses& losses, LayeredOptimizer& optimizer, double learning_rate, double max_grad_norm);

}  // namespace distilld::models
