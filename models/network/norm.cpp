#include "models/network/norm.hpp"

#include <torch/autograd.h>
#include <torch/utils.h>

#include "models/kernels/rms_norm.hpp"

namespace distilld::models {
namespace {

using torch::Tensor;

Tensor as_rows(const Tensor& tensor) {
    return tensor.defined() ? tensor.reshape({-1, tensor.size(-1)}).contiguous() : tensor;
}

kernels::NormedRows normed_rows(const Tensor& input, const std::optional<Tensor>& addition, const Tensor& weight,
                                double epsilon) {
    return kernels::rms_norm(as_rows(input), as_rows(addition.value_or(Tensor())),
                             weight.to(input.scalar_type()).contiguous(), epsilon);
}

class RmsNormed : public torch::autograd::Function<RmsNormed> {
  public:
    static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, const Tensor& input,
                                                  const std::optional<Tensor>& addition, const Tensor& weight,
                                                  double epsilon) {
        const kernels::NormedRows rows = normed_rows(input, addition, weight, epsilon);
        // Without an addition the stream is the input itself, which autograd recognizes.
        const Tensor stream = addition ? rows.stream.view(input.sizes()) : input;
        context->save_for_backward({stream, rows.scale, weight});
        context->saved_data["added"] = addition.has_value();
        context->saved_data["trains"] = weight.requires_grad();
        context->set_materialize_grads(false);
        return {stream, rows.normed.view(input.sizes())};
    }

    static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                   torch::autograd::variable_list gradients) {
        const bool added = context->saved_data["added"].toBool();
        const Tensor& passed = gradients[0];
        if (!gradients[1].defined()) {
            return {passed, added ? passed : Tensor(), Tensor(), Tensor()};
        }
        const auto saved = context->get_saved_variables();
        const Tensor& stream = saved[0];
        const kernels::NormGradients back = kernels::rms_norm_backward(
            as_rows(gradients[1]), as_rows(passed), as_rows(stream), saved[1],
            saved[2].to(stream.scalar_type()).contiguous(), context->saved_data["trains"].toBool());
        const Tensor of_stream = back.stream.view(stream.sizes());
        if (back.weight.defined()) {
            add_gradient(saved[2], back.weight);
        }
        return {of_stream, added ? of_stream : Tensor(), Tensor(), Tensor()};
    }
};

}  // namespace

RmsNorm::RmsNorm(ParameterGroup& group, const std::string& name, std::int64_t size, double epsilon)
    : weight_(&declare_parameter(group, name + ".weight", {size}, InitialValues::ones)), epsilon_(epsilon) {}

Tensor RmsNorm::forward(const Tensor& input) const {
    return forward(input, std::nullopt).normed;
}

NormedStream RmsNorm::forward(const Tensor& input, const std::optional<Tensor>& addition) const {
    if (!input.is_cpu()) {
        Tensor stream = addition ? input + *addition : input;
        Tensor normed = at::rms_norm(stream, {stream.size(-1)}, weight_of(*weight_, stream.scalar_type()), epsilon_);
        return {stream, normed};
    }
    const Tensor& weight = weight_->compute.defined() ? weight_->compute : weight_->master;
    if (!torch::GradMode::is_enabled()) {
        const kernels::NormedRows rows = normed_rows(input, addition, weight, epsilon_);
        return {addition ? rows.stream.view(input.sizes()) : input, rows.normed.view(input.sizes())};
    }
    const auto both = RmsNormed::apply(input, addition, weight, epsilon_);
    return {both[0], both[1]};
}

LayerNorm::LayerNorm(ParameterGroup& group, const std::string& name, std::int64_t size, double epsilon)
    : weight_(&declare_parameter(group, name + ".weight", {size}, InitialValues::ones)),
      bias_(&declare_parameter(group, name + ".bias", {size}, InitialValues::zeros)),
      epsilon_(epsilon) {}

NormedStream LayerNorm::forward(const Tensor& input, const std::optional<Tensor>& addition) const {
    const auto type = input.scalar_type();
    Tensor stream = addition ? input + *addition : input;
    Tensor normed =
        at::layer_norm(stream, {stream.size(-1)}, weight_of(*weight_, type), weight_of(*bias_, type), epsilon_);
    return {stream, normed};
}

Norm::Norm(ParameterGroup& group, const std::string& name, const DecoderConfig& config)
    : norm_(config.norm == NormKind::layer
                ? std::variant<RmsNorm, LayerNorm>(LayerNorm(group, name, config.hidden_size, config.norm_epsilon))
                : RmsNorm(group, name, config.hidden_size, config.norm_epsilon)) {}

NormedStream Norm::forward(const Tensor& input, const std::optional<Tensor>& addition) const {
    return std::visit([&](const auto& norm) { return norm.forward(input, addition); }, norm_);
}

}  // namespace distilld::models
