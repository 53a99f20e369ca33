#pragma once

#include <torch/types.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace distilld::models {

/// Initial values of a parameter.
enum class InitialValues { normal, zeros, ones };

/// A trained parameter in the compute dtype, as of one version of its master.
struct ConvertedMaster {
    torch::Tensor master;
    std::uint32_t version = 0;
    torch::Tensor converted;
    bool alone = false;  ///< since drop_master()
    std::mutex mutex;    ///< of the above: several micro-batches may be in forward
};

/// One tensor of a network that is read, saved and, if `trainable`, trained. Copies share the tensors.
struct Parameter {
    std::string name;  ///< in Hugging Face files: "model.layers.0.self_attn.q_proj.weight"
    /// fp32 (fp64 in an fp64 network) leaf on the device; requires_grad when trainable. Undefined in a network that
    /// only infers.
    torch::Tensor master;
    /// A copy in the compute dtype, kept for a frozen parameter. Undefined: forward converts the master at each use, so
    /// that autograd sees the conversion.
    torch::Tensor compute;
    bool trainable = true;
    bool decays = false;  ///< weight decay applies: matrices, not norms and biases (as transformers' Trainer)
    InitialValues initial = InitialValues::normal;
    double initial_scale = 1.0;               ///< scale of the standard deviation for `normal`
    torch::ScalarType saved = torch::kFloat;  ///< dtype in an exported model: the one it was read with
    std::shared_ptr<ConvertedMaster> converted = std::make_shared<ConvertedMaster>();  ///< of compute_weight()

    /// The tensor that exists; for sizes.
    [[nodiscard]] const torch::Tensor& held() const noexcept { return master.defined() ? master : compute; }
};

/// Parameters that one part of the forward pass uses, in a fixed order.
struct ParameterGroup {
    std::string name;  ///< "embedding", "layers.0" …, "head"
    /// A deque, because parts of a network refer to their parameters while later parts add some.
    std::deque<Parameter> parameters;
};

/// Adds a parameter with a shape but without memory (its master is on the meta device). The reference is valid as long
/// as the group.
Parameter& declare_parameter(ParameterGroup& group, std::string name, std::vector<std::int64_t> shape,
                             InitialValues initial);

/// Gives every declared parameter memory; the values are arbitrary.
void allocate_parameters(std::span<ParameterGroup> groups, torch::ScalarType type, const torch::Device& device);

/// Sets normal(0, initial_scale · `deviation`), 0 or 1, as each parameter says. Draws fp32 numbers on the CPU from a
/// generator of its own, so the values depend only on the seed and the shapes, not on device, dtype or global state.
void initialize_parameters(std::span<ParameterGroup> groups, std::uint64_t seed, double deviation);

/// For inference only: from now on, the parameter holds only `value`, in the compute dtype.
void keep_converted(Parameter& parameter, torch::Tensor value);

/// The number of elements in all parameters.
[[nodiscard]] std::uint64_t parameter_count(std::span<const ParameterGroup> groups);
/// The number of elements in the trainable parameters.
[[nodiscard]] std::uint64_t trainable_count(std::span<const ParameterGroup> groups);

/// The parameters of all groups in forward order; shares the tensors.
[[nodiscard]] std::vector<Parameter> all_parameters(std::span<const ParameterGroup> groups);

/// The weight for forward: the kept copy, or the master converted to `type`, recorded by autograd. Backward adds the
/// gradient with add_gradient(): use it once per forward.
[[nodiscard]] torch::Tensor weight_of(const Parameter& parameter, torch::ScalarType type);

/// The same without a record: the kept copy or a conversion of the master that is made once per change of the master.
/// Whoever changes a master in a way that libtorch does not see must bump its version.
[[nodiscard]] torch::Tensor compute_weight(const Parameter& parameter, torch::ScalarType type);

/// Frees the memory of a master that another rank keeps, and returns the copy in `type`, another dtype than the
/// master's: from now on, the weight for forward, which the caller overwrites after each step. The master keeps its
/// shape, and reads as NaN.
torch::Tensor drop_master(const Parameter& parameter, torch::ScalarType type);

/// Adds `gradient` to the parameter's gradient as autograd would, in the micro-batch's turn (GradientTurn): the sum of
/// a micro-batch is complete before it is added.
void add_gradient(const torch::Tensor& master, const torch::Tensor& gradient);

/// Whether no element is NaN or infinite. Any floating dtype and device; does not copy the tensor.
[[nodiscard]] bool all_finite(const torch::Tensor& tensor);

}  // namespace distilld::models
