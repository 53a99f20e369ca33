#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "models/network/parameter.hpp"
#include "models/optimizers/update_rule.hpp"
#include "models/weights/safetensors.hpp"

namespace distilld::models {

/// When a step's updates run. Both modes give the same bits: each tensor's update is one call with the same inputs.
enum class UpdateMode {
    serial,  ///< all in finish_step()
    lazy,    ///< each group in apply(), called just before that group's next use
};

/// Steps of an update rule over the trainable parameters of some groups, group by group. Gradients are the masters'
/// .grad, which are dropped as soon as they are used. A parameter without a gradient and its state do not change.
/// Everything runs on the compute thread.
class LayeredOptimizer {
  public:
    /// Shares the tensors of `groups`. `keeps(g)`: whether the state of group g has memory here; otherwise it is on the
    /// meta device, and the group must never get a gradient. Empty: all of it.
    LayeredOptimizer(std::span<const ParameterGroup> groups, std::unique_ptr<UpdateRule> rule, UpdateMode mode,
                     const std::function<bool(std::size_t)>& keeps = {});

    /// l2_norm() of all gradients. Only when no update is pending.
    [[nodiscard]] double gradient_norm() const;
    /// l2_norm_scalar() of all gradients.
    [[nodiscard]] torch::Tensor gradient_norm_scalar() const;

    /// Closes a step: gradients × `clip_coefficient` (1 = none) become an update with `learning_rate`, at once or
    /// pending per group. Applies pending updates of the previous step first. With learning rate 0, the parameters keep
    /// their bits and the state changes. Without any gradient (no position of the step had a target), nothing changes
    /// or decays, and steps() stays; unless `others_have_some`: another rank has gradients of the step.
    void finish_step(double learning_rate, double clip_coefficient, bool others_have_some = false);

    /// Drops the gradients of a skipped step. Only when no update is pending.
    void drop_gradients();

    /// Applies the group's pending update; false if there is none.
    bool apply(std::size_t group);
    /// Applies the first pending group's update in forward order; false if none is pending.
    bool apply_next();
    void apply_all();
    [[nodiscard]] bool pending() const noexcept { return pending_count_ > 0; }

    /// Finished steps with gradients: t of the next step minus 1.
    [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }

    /// The rule's state by name, for example "exp_avg.<parameter>". Shares memory.
    [[nodiscard]] NamedTensors state() const;
    [[nodiscard]] NamedTensors state_of(std::size_t group) const;
    /// After the tensors of state() were overwritten: sets the step count and drops gradients and pending updates.
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
