#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/network/parameter.hpp"
#include "models/weights/safetensors.hpp"

namespace distilld::models {

struct AdamWOptions {
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 0.0;  ///< on parameters that decay
};

/// When the updates of a step run. The bits are the same: each tensor's update is one call with the same inputs.
enum class UpdateMode {
    serial,  ///< all in finish_step()
    lazy,    ///< each group's by apply(), called just before that group's next use
};

/// AdamW (Loshchilov & Hutter, arXiv 1711.05101) over the trainable parameters of some groups, by PyTorch's fused
/// kernel: p −= lr·wd·p; m, v; p −= lr/(1−β1^t) · m / (√v/√(1−β2^t) + ε). State m, v in the master's dtype and on its
/// device. Gradients are the masters' .grad, dropped as soon as used. A parameter without a gradient is left alone,
/// moments included. Everything on the compute thread.
class LayeredAdamW {
  public:
    /// Shares the tensors of `groups`.
    LayeredAdamW(std::span<const ParameterGroup> groups, AdamWOptions options, UpdateMode mode);

    /// l2_norm() of all gradients. Only when no update is pending.
    [[nodiscard]] double gradient_norm() const;

    /// Closes a step: gradients × `clip_coefficient` (1 = none) go into an update with `learning_rate`, at once or left
    /// pending per group. Updates still pending of the step before are applied first. With learning rate 0 the
    /// parameters keep their very bits; the moments move. Without a single gradient (no position of the step carried a
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

    /// Moments by name: "exp_avg.<parameter>", "exp_avg_sq.<parameter>". Shares memory.
    [[nodiscard]] NamedTensors state() const;
    /// After the tensors of state() were overwritten: sets the step count, forgets gradients and pending updates.
    void reset(std::uint64_t steps);

  private:
    struct Slot {
        std::string name;
        torch::Tensor parameter;  ///< the master
        torch::Tensor exp_avg;
        torch::Tensor exp_avg_sq;
        bool decays = false;
    };
    struct Update {
        double learning_rate = 0;
        double clip_coefficient = 1;
        std::uint64_t step = 0;
    };
    [[nodiscard]] std::vector<torch::Tensor> gradients() const;
    void update(const std::vector<Slot>& group, const Update& update) const;

    std::vector<std::vector<Slot>> groups_;
    std::vector<std::optional<Update>> pending_;
    std::size_t pending_count_ = 0;
    AdamWOptions options_;
    UpdateMode mode_;
    std::uint64_t steps_ = 0;
};

}  // namespace distilld::models
