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

using torch::Tensor;

/// input · Wᵀ + b for a trained W, where `weight` is W in the compute dtype. It adds the gradient of W to that of
/// `master` itself, so that the gradient never exists in the master's dtype apart from the sum.
class Projected : public torch::autograd::Function<Projected> {
  public:
    static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& input, const Tensor& master,
                          const Tensor& weight, const std::optional<Tensor>& bias, bool transposed) {
        context->save_for_backward({input, master, weight});
        context->saved_data["transposed"] = transposed;
        context->saved_data["bias"] = bias.has_value();
        context->saved_data["input"] = input.requires_grad();
        return at::linear(input, transposed ? weight.t() : weight, bias);
    }

    static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                   torch::autograd::variable_list gradients) {
        const auto saved = context->get_saved_variables();
        const bool transposed = context->saved_data["transposed"].toBool();
        const Tensor rows = gradients[0].reshape({-1, gradients[0].size(-1)});
        const Tensor inputs = saved[0].reshape({-1, saved[0].size(-1)});
        const Tensor product = torch::mm(rows.t(), inputs);
        add_gradient(saved[1], transposed ? product.t() : product);
        Tensor of_input;
        if (context->saved_data["input"].toBool()) {
            of_input = torch::mm(rows, transposed ? saved[2].t() : saved[2]).view(saved[0].sizes());
        }
        return {of_input, Tensor(), Tensor(), context->saved_data["bias"].toBool() ? rows.sum(0) : Tensor(), Tensor()};
    }
};

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

Tensor Linear::forward(const Tensor& input) const {
    std::optional<Tensor> bias;
    if (bias_ != nullptr) {
        bias = weight_of(*bias_, input.scalar_type());
    }
    if (ternary_) {
        return at::linear(
            straight_through_int8(input),
            straight_through_ternary(weight_of(*weight_, weight_->master.scalar_type()), input.scalar_type()), bias);
    }
    const Tensor weight = compute_weight(*weight_, input.scalar_type());
    const bool records = weight_->trainable && torch::GradMode::is_enabled();
    const Tensor output = records ? Projected::apply(input, weight_->master, weight, bias, transposed_)
                                  : at::linear(input, transposed_ ? weight.t() : weight, bias);
    return adapter_ ? adapter_->add_to(output, input) : output;
}

void Linear::adapt(std::unique_ptr<const LoraAdapter> adapter) {
    adapter_ = std::move(adapter);
}

}  // namespace distilld::models
