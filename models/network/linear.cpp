#include "models/network/linear.hpp"

#include <optional>
#include <utility>
#include <vector>

#include "models/network/lora.hpp"
#include "models/network/ternary.hpp"

namespace distilld::models {

namespace {

const Parameter& declare_weight(ParameterGroup& group, const std::string& name, std::int64_t outputs,
                                std::int64_t inputs, const LinearForm& form) {
    const std::vector<std::int64_t> shape =
        form.transposed ? std::vector{inputs, outputs} : std::vector{outputs, inputs};
    Parameter& weight = declare_parameter(group, name + ".weight", shape, InitialValues::normal);
    weight.initial_scale = form.initial_scale;
    return weight;
}

}  // namespace

Linear::Linear(ParameterGroup& group, const std::string& name, std::int64_t outputs, std::int64_t inputs,
               const LinearForm& form)
    : name_(name),
      outputs_(outputs),
      inputs_(inputs),
      transposed_(form.transposed),
      weight_(&declare_weight(group, name, outputs, inputs, form)),
      bias_(form.bias ? &declare_parameter(group, name + ".bias", {outputs}, InitialValues::zeros) : nullptr) {}

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
    const torch::Tensor weight = weight_of(*weight_, input.scalar_type());
    const torch::Tensor output = at::linear(input, transposed_ ? weight.t() : weight, bias);
    return adapter_ ? adapter_->add_to(output, input) : output;
}

void Linear::adapt(std::unique_ptr<const LoraAdapter> adapter) {
    adapter_ = std::move(adapter);
}

}  // namespace distilld::models
