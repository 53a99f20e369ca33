#include "models/network/mlp.hpp"

namespace distilld::models {
namespace {

Linear declare_inner(const LayerPlace& place, const char* name) {
    const DecoderConfig& config = place.config;
    return {place.group, place.name(name), config.intermediate_size, config.hidden_size,
            LinearForm{.bias = config.mlp_bias, .transposed = config.transposed_linears}};
}

torch::Tensor activated(const torch::Tensor& input, Activation activation) {
    switch (activation) {
        case Activation::silu:
            return torch::silu(input);
        case Activation::gelu:
            return torch::gelu(input);
        case Activation::gelu_tanh:
            return torch::gelu(input, "tanh");
        case Activation::relu:
            return torch::relu(input);
    }
    return input;
}

}  // namespace

Mlp::Mlp(const LayerPlace& place)
    : activation_(place.config.activation),
      gate_(place.config.gated_mlp ? std::optional(declare_inner(place, place.names.gate)) : std::nullopt),
      up_(declare_inner(place, place.names.up)),
      down_(place.group, place.name(place.names.down), place.config.hidden_size, place.config.intermediate_size,
            place.into_stream(place.config.mlp_bias)) {}

std::vector<Linear*> Mlp::linears() {
    return gate_ ? std::vector<Linear*>{&*gate_, &up_, &down_} : std::vector<Linear*>{&up_, &down_};
}

torch::Tensor Mlp::forward(const torch::Tensor& input) const {
    if (!gate_) {
        return down_.forward(activated(up_.forward(input), activation_));
    }
    return down_.forward(activated(gate_->forward(input), activation_) * up_.forward(input));
}

}  // namespace distilld::models
