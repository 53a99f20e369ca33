#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "models/network/parameter.hpp"
#include "models/weights/safetensors.hpp"
#include "pipeline/core/spec_sections.hpp"

namespace distilld::models {

struct OptimizerOptions {
    OptimizerKind kind = OptimizerKind::adamw;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 0.0;  ///< of parameters that decay
    double momentum = 0.0;      ///< for sgd
};

[[nodiscard]] OptimizerOptions optimizer_options(const TrainingSpec& training);

/// A trained parameter with its optimizer state.
struct OptimizerSlot {
    std::string name;
    torch::Tensor parameter;  ///< the master; its .grad is the gradient of the step
    NamedTensors state;       ///< as make_state() made it
    bool decays = false;
};

/// The numbers of one step's update.
struct UpdateNumbers {
    double learning_rate = 0;     ///< 0: parameters keep their bits, state changes
    double clip_coefficient = 1;  ///< factor of the gradients
    std::uint64_t step = 1;       ///< t, from 1
};

/// How a step updates parameters. Stateless: a parameter's state is in its slot. Each tensor's update depends only on
/// that tensor, so the order of calls does not change bits. Compute thread.
class UpdateRule {
  public:
    virtual ~UpdateRule() = default;

    /// The state before the first step, on the parameter's device (without memory on the meta device). Its names are
    /// those in a checkpoint, without ".<parameter>".
    [[nodiscard]] virtual NamedTensors make_state(const Parameter& parameter, const ParameterGroup& group) const = 0;

    /// Updates the slots' parameters and states. All slots have a gradient.
    virtual void update(std::span<OptimizerSlot* const> slots, const UpdateNumbers& numbers) const = 0;
};

/// Selects from the table in update_rules.cpp.
[[nodiscard]] std::unique_ptr<UpdateRule> make_update_rule(const OptimizerOptions& options);

/// Bytes that training these parameters needs in addition to activations: weights and, for trained parameters,
/// gradient_sums() and optimizer state. Frozen parameters are stored once, in `compute`, the others in `master`. The
/// parameters may be without memory.
[[nodiscard]] std::uint64_t training_bytes(std::span<const ParameterGroup> groups, const TrainingSpec& training,
                                           torch::ScalarType master, torch::ScalarType compute);

// The rows of the table.

/// AdamW (Loshchilov & Hutter, arXiv 1711.05101) by PyTorch's fused kernel: p −= lr·wd·p; m, v; p −= lr/(1−β1^t) ·
/// m / (√v/√(1−β2^t) + ε). State exp_avg, exp_avg_sq in the master's dtype.
[[nodiscard]] std::unique_ptr<UpdateRule> make_adamw(const OptimizerOptions& options);

/// AdamW with 8-bit moments (Dettmers et al., arXiv 2110.02861), as in bitsandbytes' AdamW8bit: blocks of 256 numbers,
/// each with its own scale (see block_quantizer.hpp). Moments stay in 32 bits for parameters of fewer than 4,096
/// numbers and, as transformers' Trainer configures bitsandbytes, for the embedding. The step is AdamW's above, in fp32
/// on the moments before rounding; the weight decays before it, as in PyTorch (bitsandbytes: after it). State exp_avg
/// and exp_avg_sq in u8, with scales exp_avg_absmax and exp_avg_sq_absmax.
[[nodiscard]] std::unique_ptr<UpdateRule> make_adamw_8bit(const OptimizerOptions& options);

/// Stochastic gradient descent as in torch.optim.SGD: d = g + wd·p; b = momentum·b + d; p −= lr·b (without momentum
/// lr·d). State momentum_buffer; none without momentum.
[[nodiscard]] std::unique_ptr<UpdateRule> make_sgd(const OptimizerOptions& options);

}  // namespace distilld::models
