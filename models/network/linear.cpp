#include "models/network/linear.hpp"

#include <optional>

namespace distilld::models {

Linear::Linear(ParameterGroup& group, const std::string& name, std::int64_t outputs, std::int64_t inputs, bool bias)
    : weight_(&declare_parameter(group, name + ".weight", {outputs, inputs}, InitialValues::normal)),
      bias_(bias ? &declare_parameter(group, name + ".bias", {outputs}, InitialValues::zeros) : nullptr) {}

torch::Tensor Linear::forward(const torch::Tensor& input) const {
    std::optional<torch::Tensor> bias;
    if (bias_ != nullptr) {
        bias = weight_of(*bias_, input.scalar_type());
    }
    return at::linear(input, weight_of(*weight_, input.scalar_type()), bias);
}

}  // namespace distilld::models
