#include "models/network/mlp.hpp"

namespace distilld::models {

Mlp::Mlp(ParameterGroup& group, const DecoderConfig& config, const DecoderNames& names, const std::string& prefix)
    : gate_(group, prefix + names.gate, config.intermediate_size, config.hidden_size, config.mlp_bias),
      up_(group, prefix + names.up, config.intermediate_size, config.hidden_size, config.mlp_bias),
      down_(group, prefix + names.down, config.hidden_size, config.intermediate_size, config.mlp_bias) {}

std::vector<Linear*> Mlp::linears() {
    return {&gate_, &up_, &down_};
}

torch::Tensor Mlp::forward(const torch::Tensor& input) const {
    return down_.forward(torch::silu(gate_.forward(input)) * up_.forward(input));
}

}  // namespace distilld::models
