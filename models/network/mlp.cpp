#include "models/network/mlp.hpp"

#include <torch/autograd.h>
#include <torch/utils.h>

#include "models/kernels/gated.hpp"

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

class SiluGated : public torch::autograd::Function<SiluGated> {
  public:
    static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& gate,
                                 const torch::Tensor& up) {
        context->save_for_backward({gate, up});
        return kernels::silu_gated(gate, up);
    }

    static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                   torch::autograd::variable_list gradients) {
        const auto saved = context->get_saved_variables();
        const auto [of_gate, of_up] = kernels::silu_gated_backward(gradients[0].contiguous(), saved[0], saved[1]);
        return {of_gate, of_up};
    }
};

/// activation(gate) · up.
torch::Tensor gated(const torch::Tensor& gate, const torch::Tensor& up, Activation activation) {
    if (activation != Activation::silu || !gate.is_cpu()) {
        return activated(gate, activation) * up;
    }
    const torch::Tensor gates = gate.contiguous();
    const torch::Tensor ups = up.contiguous();
    return torch::GradMode::is_enabled() ? SiluGated::apply(gates, ups) : kernels::silu_gated(gates, ups);
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

torch::Tensor Mlp::forward(const torch::Tensor& input, ProductKind kind) const {
    if (!gate_) {
        return down_.forward(activated(up_.forward(input, kind), activation_), kind);
    }
    const auto inner = Linear::forward_all({&*gate_, &up_}, input, kind);
    return down_.forward(gated(inner[0], inner[1], activation_), kind);
}

}  // namespace distilld::models
