#include "models/network/linear.hpp"

#include <optional>
#include <utility>

#include "models/network/lora.hpp"
#include "models/network/ternary.hpp"

namespace distilld::models {

Linear::Linear(ParameterGroup& group, const std::string& name, std::int64_t outputs, std::int64_t inputs, bool bias)
    : name_(name),
      outputs_(outputs),
      inputs_(inputs),
      weight_(&declare_parameter(group, name + ".weight", {outputs, inputs}, InitialValues::normal)),
      bias_(bias ? &declare_parameter(group, name + ".bias", {outputs}, InitialValues::zeros) : nullptr) {}

Linear::~Linear() = default;
Linear::Linear(Linear&& other) noexcept = default;
Linear& Linear::operator=(Linear&& other) noexcept = default;

torch::Tensor Linear::forward(const torch::Tensor& input) const {
    std::optional<torch::Tensor> bias;
    if (bias_ != nullptr) {
        bias = weight_of(*bias_, input.scalar_type());
    }
    if (ternary_) {
        return at::linear(straight_through_int8(input), straight_through_ternary(weight_->master, input.scalar_type()),
                          bias);
    }
    const torch::Tensor output = at::linear(input, weight_of(*weight_, input.scalar_type()), bias);
    return adapter_ ? adapter_->add_to(output, input) : output;
}

void Linear::adapt(std::unique_ptr<const LoraAdapter> adapter) {
    adapter_ = std::move(adapter);
}

}  // namespace distilld::models
