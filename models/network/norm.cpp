#include "models/network/norm.hpp"

namespace distilld::models {

RmsNorm::RmsNorm(ParameterGroup& group, const std::string& name, std::int64_t size, double epsilon)
    : weight_(&declare_parameter(group, name + ".weight", {size}, InitialValues::ones)), epsilon_(epsilon) {}

torch::Tensor RmsNorm::forward(const torch::Tensor& input) const {
    const auto type = input.scalar_type();
    const auto wide = input.to(type == torch::kDouble ? torch::kDouble : torch::kFloat);
    const auto scale = torch::rsqrt(wide.square().mean(-1, true) + epsilon_);
    return weight_of(*weight_, type) * (wide * scale).to(type);
}

LayerNorm::LayerNorm(ParameterGroup& group, const std::string& name, std::int64_t size, double epsilon)
    : weight_(&declare_parameter(group, name + ".weight", {size}, InitialValues::ones)),
      bias_(&declare_parameter(group, name + ".bias", {size}, InitialValues::zeros)),
      epsilon_(epsilon) {}

torch::Tensor LayerNorm::forward(const torch::Tensor& input) const {
    const auto type = input.scalar_type();
    return at::layer_norm(input, {input.size(-1)}, weight_of(*weight_, type), weight_of(*bias_, type), epsilon_);
}

Norm::Norm(ParameterGroup& group, const std::string& name, const DecoderConfig& config)
    : norm_(config.norm == NormKind::layer
                ? std::variant<RmsNorm, LayerNorm>(LayerNorm(group, name, config.hidden_size, config.norm_epsilon))
                : RmsNorm(group, name, config.hidden_size, config.norm_epsilon)) {}

torch::Tensor Norm::forward(const torch::Tensor& input) const {
    return std::visit([&](const auto& norm) { return norm.forward(input); }, norm_);
}

}  // namespace distilld::models
