#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "models/network/parameter.hpp"
#include "models/optimizers/update_rule.hpp"
#include "models/weights/safetensors.hpp"

namespace distilld::models {

/// When the updates of a step run. The bits are the same: each tensor's update is one call with the same inputs.
enum class UpdateMode {
    serial,  ///< all in finish_step()
    lazy,    ///< each group's by apply(), called just before that group's next use
};

/// Steps of an update rule over the trainable parameters of some groups, group by group. Gradients are the masters'
/// .grad, dropped as soon as used. A parameter without a gradient is left alone, its state included. Everything on the
/// compute thread.
class LayeredOptimizer {
  public:
    /// Shares the tensors of `groups`.
    LayeredOptimizer(std::span<const ParameterGroup> groups, std::unique_ptr<UpdateRule> rule, UpdateMode mode);

    /// l2_norm() of all gradients. Only when no update is pending.
    [[nodiscard]] double gradient_norm() const;
    /// l2_norm_scalar() of them.
    [[nodiscard]] torch::Tensor gradient_norm_scalar() const;

    /// Closes a step: gradients × `clip_coefficient` (1 = none) go into an update with `learning_rate`, at once or left
    /// pending per group. Updates still pending of the step before are applied first. With learning rate 0 the
    /// parameters keep their very bits; the state moves. Without a single gradient (no position of the step carried a
    /// target) it is no step: nothing moves or decays, and steps() stays.
    void finish_step(double learning_rate, double clip_coefficient);

    /// Forgets the gradients of a step that is skipped. Only when no update is pending.
    void drop_gradients();

    /// Applies what is pending for this group; false when nothing is.
    bool apply(std::size_t group);
    /// The first pending group in forward order; false when none is pending.
    bool apply_next();
    void apply_all();
    [[nodiscard]] bool pending() const noexcept { return pending_count_ > 0; }

    /// Steps finished that had gradients, t of the next one less 1.
    [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }

    /// The rule's state by name, "exp_avg.<parameter>" for one. Shares memory.
    [[nodiscard]] NamedTensors state() const;
    /// After the tensors of state() were overwritten: sets the step count, forgets gradients and pending updates.
    void reset(std::uint64_t steps);

  private:
    [[nodiscard]] std::vector<torch::Tensor> gradients() const;
    void update(std::vector<OptimizerSlot>& group, const UpdateNumbers& numbers) const;

    std::vector<std::vector<OptimizerSlot>> groups_;
    std::vector<std::optional<UpdateNumbers>> pending_;
    std::size_t pending_count_ = 0;
    std::unique_ptr<UpdateRule> rule_;
    UpdateMode mode_;
    std::uint64_t steps_ = 0;
};

}  // namespace distilld::models
