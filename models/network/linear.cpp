#include "models/network/linear.hpp"

#include <ATen/Parallel.h>
#include <torch/autograd.h>
#include <torch/utils.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "models/kernels/few_rows.hpp"
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

using at::TensorList;
using torch::Tensor;
using torch::autograd::variable_list;

/// input · Wᵀ + b for each of some trained W of the same form, where `weights` are these W in the compute dtype. It
/// adds the gradient of W to that of the master itself, so that the gradient never exists in the master's dtype apart
/// from the sum. Each product of backward adds to the gradient of `input`, which no other pass sums.
class Projected : public torch::autograd::Function<Projected> {
  public:
    static variable_list forward(torch::autograd::AutogradContext* context, const Tensor& input, TensorList masters,
                                 TensorList weights, TensorList biases, bool transposed) {
        variable_list saved{input};
        saved.insert(saved.end(), masters.begin(), masters.end());
        saved.insert(saved.end(), weights.begin(), weights.end());
        context->save_for_backward(std::move(saved));
        context->saved_data["transposed"] = transposed;
        context->saved_data["biases"] = static_cast<std::int64_t>(biases.size());
        context->saved_data["input"] = input.requires_grad();
        variable_list outputs;
        for (std::size_t i = 0; i < weights.size(); ++i) {
            outputs.push_back(at::linear(input, transposed ? weights[i].t() : weights[i],
                                         biases.empty() ? std::optional<Tensor>() : biases[i]));
        }
        return outputs;
    }

    static variable_list backward(torch::autograd::AutogradContext* context, const variable_list& gradients) {
        const auto saved = context->get_saved_variables();
        const std::size_t count = gradients.size();
        const bool transposed = context->saved_data["transposed"].toBool();
        const bool with_biases = context->saved_data["biases"].toInt() > 0;
        const Tensor inputs = saved[0].reshape({-1, saved[0].size(-1)});
        Tensor of_input;
        variable_list of_biases;
        for (std::size_t i = 0; i < count; ++i) {
            const Tensor rows = gradients[i].reshape({-1, gradients[i].size(-1)});
            const Tensor product = torch::mm(rows.t(), inputs);
            add_gradient(saved[1 + i], transposed ? product.t() : product);
            if (context->saved_data["input"].toBool()) {
                const Tensor& weight = saved[1 + count + i];
                const Tensor plain = transposed ? weight.t() : weight;
                of_input = of_input.defined() ? of_input.addmm_(rows, plain) : torch::mm(rows, plain);
            }
            if (with_biases) {
                of_biases.push_back(rows.sum(0));
            }
        }
        variable_list all{of_input.defined() ? of_input.view(saved[0].sizes()) : of_input};
        all.resize(1 + 2 * count);  // masters and weights get none here
        all.insert(all.end(), of_biases.begin(), of_biases.end());
        all.emplace_back();
        return all;
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

std::int64_t least_rows(const torch::Device& device) {
    return device.is_cpu() ? std::max(32, 4 * at::get_num_threads()) : 1;
}

Tensor padded_rows(const Tensor& rows, std::int64_t least) {
    const std::int64_t missing = least - rows.size(0);
    if (missing <= 0) {
        return rows;
    }
    std::vector<std::int64_t> sizes(rows.sizes().begin(), rows.sizes().end());
    sizes.front() = missing;
    return at::cat({rows, at::zeros(sizes, rows.options())});
}

Tensor product(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias, ProductKind kind) {
    if (kind == ProductKind::library || !weight.is_cpu()) {
        return at::linear(input, weight, bias);
    }
    if (kernels::takes_few_rows(weight)) {
        return kernels::few_rows_product(input, weight, bias);
    }
    const Tensor rows = input.reshape({-1, input.size(-1)});
    std::vector<std::int64_t> sizes(input.sizes().begin(), input.sizes().end());
    sizes.back() = weight.size(0);
    return at::linear(padded_rows(rows, least_rows(weight.device())), weight, bias)
        .narrow(0, 0, rows.size(0))
        .reshape(sizes);
}

Tensor Linear::forward(const Tensor& input, ProductKind kind) const {
    if (trains_plainly()) {
        return forward_all({this}, input).front();
    }
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
    const Tensor output = product(input, transposed_ ? weight.t() : weight, bias, kind);
    return adapter_ ? adapter_->add_to(output, input, kind) : output;
}

std::vector<Tensor> Linear::forward_all(const std::vector<const Linear*>& modules, const Tensor& input,
                                        ProductKind kind) {
    variable_list outputs;
    if (!std::ranges::all_of(modules, &Linear::trains_plainly)) {
        for (const Linear* module : modules) {
            outputs.push_back(module->forward(input, kind));
        }
        return outputs;
    }
    variable_list masters;
    variable_list weights;
    variable_list biases;
    for (const Linear* module : modules) {
        masters.push_back(module->weight_->master);
        weights.push_back(compute_weight(*module->weight_, input.scalar_type()));
        if (module->bias_ != nullptr) {
            biases.push_back(weight_of(*module->bias_, input.scalar_type()));
        }
    }
    outputs = Projected::apply(input, TensorList(masters), TensorList(weights), TensorList(biases),
                               modules.front()->transposed_);
    for (std::size_t i = 0; i < modules.size(); ++i) {
        if (modules[i]->adapter_) {
            outputs[i] = modules[i]->adapter_->add_to(outputs[i], input);
        }
    }
    return outputs;
}

bool Linear::trains_plainly() const {
    return weight_->trainable && !ternary_ && torch::GradMode::is_enabled();
}

void Linear::adapt(std::unique_ptr<const LoraAdapter> adapter) {
    adapter_ = std::move(adapter);
}

}  // namespace distilld::models
