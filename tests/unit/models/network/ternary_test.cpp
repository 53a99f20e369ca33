#include "models/network/ternary.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace distilld::models {
namespace {

using torch::Tensor;

Tensor drawn(at::IntArrayRef sizes, std::uint64_t seed) {
    return torch::randn(sizes, torch::make_generator<torch::CPUGeneratorImpl>(seed), torch::kFloat);
}

/// By the book, with the gradient that autograd finds when the roundings are constants.
Tensor plain_ternary(const Tensor& weight) {
    const Tensor scale = weight.detach().abs().mean().clamp_min(1e-5);
    return weight + ((weight / scale).round().clamp(-1, 1) * scale - weight).detach();
}

Tensor plain_int8(const Tensor& input) {
    const Tensor scale = 127 / std::get<0>(input.detach().abs().max(-1, true)).clamp_min(1e-5);
    return input + ((input * scale).round().clamp(-128, 127) / scale - input).detach();
}

TEST(Ternary, WeightsAreThreeValuesAndTheirScale) {
    const Tensor weight = torch::tensor({{0.3F, -0.6F, 0.1F, 2.0F}, {-0.05F, 0.0F, -0.75F, 0.2F}});
    const auto [values, scale] = ternary_weight(weight);
    EXPECT_NEAR(scale.item<float>(), 0.5F, 1e-6);
    EXPECT_TRUE(torch::equal(values, torch::tensor({{1.0F, -1.0F, 0.0F, 1.0F}, {0.0F, 0.0F, -1.0F, 0.0F}}))) << values;
    const auto nothing = ternary_weight(torch::zeros({4, 4}));
    EXPECT_FLOAT_EQ(nothing.scale.item<float>(), 1e-5F);
    EXPECT_EQ(nothing.values.abs().sum().item<float>(), 0);
}

TEST(Ternary, ForwardAndBackwardAreThoseOfPlainAutograd) {
    Tensor weight = (0.1 * drawn({24, 32}, 1)).requires_grad_(true);
    Tensor input = drawn({3, 5, 32}, 2).requires_grad_(true);
    Tensor weight_too = weight.detach().clone().requires_grad_(true);
    Tensor input_too = input.detach().clone().requires_grad_(true);
    const Tensor ours = at::linear(straight_through_int8(input), straight_through_ternary(weight, torch::kFloat));
    const Tensor plain = at::linear(plain_int8(input_too), plain_ternary(weight_too));
    EXPECT_LT((ours - plain).abs().max().item<float>(), 1e-5F);
    EXPECT_GT((ours - at::linear(input, weight)).abs().max().item<float>(), 0.05F) << "it rounds";
    const Tensor gradient = drawn({3, 5, 24}, 3);
    ours.backward(gradient);
    plain.backward(gradient);
    EXPECT_LT((weight.grad() - weight_too.grad()).abs().max().item<float>(), 2e-5F);
    EXPECT_LT((input.grad() - input_too.grad()).abs().max().item<float>(), 2e-5F);
    EXPECT_GT(weight.grad().abs().max().item<float>(), 0.1F);
}

TEST(Ternary, InBf16TheMasterGetsAnFp32Gradient) {
    Tensor weight = (0.1 * drawn({8, 16}, 1)).requires_grad_(true);
    const Tensor input = drawn({3, 16}, 2).to(torch::kBFloat16);
    const Tensor rounded = straight_through_int8(input);
    EXPECT_EQ(rounded.scalar_type(), torch::kBFloat16);
    at::linear(rounded, straight_through_ternary(weight, torch::kBFloat16)).sum().backward();
    EXPECT_EQ(weight.grad().scalar_type(), torch::kFloat);
}

TEST(Ternary, FourValuesShareAByte) {
    // The example of transformers' unpack_weights (integrations/bitnet.py).
    const Tensor values = torch::tensor({{0, -1}, {-1, 1}, {-1, 1}, {-1, 1}, {1, 0}, {0, -1}, {1, -1}, {1, -1}});
    const Tensor packed = pack_ternary(values.to(torch::kFloat));
    EXPECT_EQ(packed.scalar_type(), torch::kUInt8);
    EXPECT_TRUE(
        torch::equal(packed.to(torch::kInt64), torch::tensor({{0b10100001, 0b00011000}, {0b10010000, 0b00001010}})))
        << packed;
}

}  // namespace
}  // namespace distilld::models
