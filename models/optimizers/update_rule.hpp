#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "models/network/parameter.hpp"
#include "models/weights/safetensors.hpp"
#include "pipeline/core/job_spec.hpp"

namespace distilld::models {

struct OptimizerOptions {
    OptimizerKind kind = OptimizerKind::adamw;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 0.0;  ///< on parameters that decay
    double momentum = 0.0;      ///< of sgd
};

[[nodiscard]] OptimizerOptions optimizer_options(const TrainingSpec& training);

/// A parameter that learns, with what its rule remembers of it.
struct OptimizerSlot {
    std::string name;
    torch::Tensor parameter;  ///< the master; its .grad is the gradient of the step
    NamedTensors state;       ///< as make_state() made it
    bool decays = false;
};

/// The numbers of one step's update.
struct UpdateNumbers {
    double learning_rate = 0;     ///< 0: parameters keep their very bits, state moves
    double clip_coefficient = 1;  ///< gradients are multiplied with it
    std::uint64_t step = 1;       ///< t, from 1
};

/// How a step moves parameters. Has no state of its own: that of a parameter is with its slot. Each tensor's update
/// depends on its own numbers alone, so the order of the calls changes no bit. Compute thread.
class UpdateRule {
  public:
    virtual ~UpdateRule() = default;

    /// State before the first step, on the parameter's device; of a parameter on the meta device without memory. Named
    /// as a checkpoint names it before ".<parameter>".
    [[nodiscard]] virtual NamedTensors make_state(const Parameter& parameter, const ParameterGroup& group) const = 0;

    /// Moves the slots' parameters and states. All slots have a gradient.
    virtual void update(std::span<OptimizerSlot* const> slots, const UpdateNumbers& numbers) const = 0;
};

/// By the table of update_rules.cpp.
[[nodiscard]] std::unique_ptr<UpdateRule> make_update_rule(const OptimizerOptions& options);

/// Bytes that training these parameters takes beside the activations: weights and, of what learns, gradients and the
/// rule's state. What is frozen lies there once, in `compute`, all else in `master`. The parameters may be declared
/// only.
[[nodiscard]] std::uint64_t training_bytes(std::span<const ParameterGroup> groups, const OptimizerOptions& options,
                                           torch::ScalarType master, torch::ScalarType compute);

// The rows of the table.

/// AdamW (Loshchilov & Hutter, arXiv 1711.05101) by PyTorch's fused kernel: p −= lr·wd·p; m, v; p −= lr/(1−β1^t) ·
/// m / (√v/√(1−β2^t) + ε). State exp_avg, exp_avg_sq in the master's dtype.
[[nodiscard]] std::unique_ptr<UpdateRule> make_adamw(const OptimizerOptions& options);

/// AdamW whose moments are kept in 8 bits (Dettmers et al., arXiv 2110.02861), as bitsandbytes' AdamW8bit has them:
/// blocks of 256 numbers, each with its own scale (see block_quantizer.hpp), and moments in 32 bits for parameters of
/// fewer than 4,096 numbers and, as transformers' Trainer asks bitsandbytes to, for the embedding. The step itself is
/// AdamW's above in fp32 on the moments before they are rounded; the weight decays before it, as in PyTorch
/// (bitsandbytes: after it). State exp_avg and exp_avg_sq, u8 with exp_avg_absmax and exp_avg_sq_absmax beside them.
[[nodiscard]] std::unique_ptr<UpdateRule> make_adamw_8bit(const OptimizerOptions& options);

/// Stochastic gradient descent as torch.optim.SGD: d = g + wd·p; b = momentum·b + d; p −= lr·b (without momentum
/// lr·d). State momentum_buffer; none without momentum.
[[nodiscard]] std::unique_ptr<UpdateRule> make_sgd(const OptimizerOptions& options);

}  // namespace distilld::models
