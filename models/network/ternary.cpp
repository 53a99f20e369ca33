#include "models/network/ternary.hpp"

#include <torch/autograd.h>
#include <torch/utils.h>

namespace distilld::models {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

constexpr double kLeast = 1e-5;  // lower bound of divisors

/// An operation with derivative 1. autograd converts the gradient's dtype.
struct TernaryRounding : Function<TernaryRounding> {
    static Tensor forward(AutogradContext* /*context*/, const Tensor& weight, torch::ScalarType type) {
        const auto [values, scale] = ternary_weight(weight);
        return (values * scale).to(type);
    }
    static variable_list backward(AutogradContext* /*context*/, const variable_list& gradients) {
        return {gradients.front(), Tensor()};
    }
};

struct Int8Rounding : Function<Int8Rounding> {
    static Tensor forward(AutogradContext* /*context*/, const Tensor& input) {
        const auto type = input.scalar_type();
        const Tensor wide = input.to(type == torch::kDouble ? torch::kDouble : torch::kFloat);
        const Tensor scale = 127.0 / wide.abs().amax(-1, true).clamp_min(kLeast);
        return (wide * scale).round_().clamp_(-128, 127).div_(scale).to(type);
    }
    static variable_list backward(AutogradContext* /*context*/, const variable_list& gradients) {
        return {gradients.front()};
    }
};

}  // namespace

TernaryWeight ternary_weight(const Tensor& weight) {
    const torch::NoGradGuard no_grad;
    const Tensor plain = weight.detach();
    const Tensor scale = plain.abs().mean().clamp_min(kLeast);
    return {(plain * scale.reciprocal()).round_().clamp_(-1, 1), scale};
}

Tensor straight_through_ternary(const Tensor& weight, torch::ScalarType type) {
    return TernaryRounding::apply(weight, type);
}

Tensor straight_through_int8(const Tensor& input) {
    return Int8Rounding::apply(input);
}

Tensor pack_ternary(const Tensor& values) {
    const torch::NoGradGuard no_grad;
    constexpr std::int64_t kValuesAByte = 4;
    TORCH_CHECK(values.size(0) % kValuesAByte == 0, "pack_ternary: ", values.size(0), " rows");
    const auto quarters = values.add(1).to(torch::kUInt8).chunk(kValuesAByte, 0);
    Tensor packed = torch::zeros_like(quarters.front());
    for (std::int64_t i = 0; i < kValuesAByte; ++i) {
        packed.bitwise_or_(quarters[static_cast<std::size_t>(i)].mul(1 << (2 * i)));
    }
    return packed;
}

}  // namespace distilld::models
