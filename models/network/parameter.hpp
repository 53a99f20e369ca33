#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

namespace distilld::models {

/// What a parameter holds before anything was learned.
enum class InitialValues { normal, zeros, ones };

/// One tensor of a network that is read, saved and, when `trainable`, learned. Copies share the tensors.
struct Parameter {
    std::string name;  ///< in Hugging Face files: "model.layers.0.self_attn.q_proj.weight"
    /// fp32 (fp64 in an fp64 network) leaf on the device; requires_grad when trainable. Undefined in a network that
    /// only infers.
    torch::Tensor master;
    /// A copy in the compute dtype that is kept because the parameter does not change. Undefined: forward converts the
    /// master at each use, so that autograd sees the conversion.
    torch::Tensor compute;
    bool trainable = true;
    bool decays = false;  ///< weight decay applies: matrices, not norms and biases (as transformers' Trainer)
    InitialValues initial = InitialValues::normal;
    double initial_scale = 1.0;               ///< of the deviation of normal ones
    torch::ScalarType saved = torch::kFloat;  ///< dtype in an exported model: the one it was read with

    /// Whichever tensor there is; for sizes.
    [[nodiscard]] const torch::Tensor& held() const noexcept { return master.defined() ? master : compute; }
};

/// Parameters that one part of the forward pass uses, in a fixed order.
struct ParameterGroup {
    std::string name;  ///< "embedding", "layers.0" …, "head"
    /// A deque, because the parts of a network refer to their parameters and a later part may add some.
    std::deque<Parameter> parameters;
};

/// Adds a parameter that has a shape but no memory yet (its master lies on the meta device). The reference stays valid
/// as long as the group.
Parameter& declare_parameter(ParameterGroup& group, std::string name, std::vector<std::int64_t> shape,
                             InitialValues initial);

/// Gives every declared parameter memory; the values are arbitrary.
void allocate_parameters(std::span<ParameterGroup> groups, torch::ScalarType type, const torch::Device& device);

/// normal(0, initial_scale · `deviation`), 0 or 1, as each parameter says. Drawn as fp32 on the CPU from a generator of
/// its own, so that the values depend on the seed and the shapes only, not on device, dtype or global state.
void initialize_parameters(std::span<ParameterGroup> groups, std::uint64_t seed, double deviation);

/// For inference only: `value`, in the compute dtype, is all that the parameter holds from now on.
void keep_converted(Parameter& parameter, torch::Tensor value);

/// Numbers that the parameters hold together.
[[nodiscard]] std::uint64_t parameter_count(std::span<const ParameterGroup> groups);
/// Of those that learn.
[[nodiscard]] std::uint64_t trainable_count(std::span<const ParameterGroup> groups);

/// The parameters of all groups in forward order; shares the tensors.
[[nodiscard]] std::vector<Parameter> all_parameters(std::span<const ParameterGroup> groups);

/// What forward multiplies with: the kept copy, or the master converted to `type`, recorded by autograd.
[[nodiscard]] inline torch::Tensor weight_of(const Parameter& parameter, torch::ScalarType type) {
    return parameter.compute.defined() ? parameter.compute : parameter.master.to(type);
}

}  // namespace distilld::models
