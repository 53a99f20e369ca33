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

}  // namespace distilld::models
