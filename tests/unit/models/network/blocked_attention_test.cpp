#include "models/network/blocked_attention.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

namespace distilld::models {
namespace {

using torch::Tensor;

constexpr std::int64_t kHeads = 4;
constexpr std::int64_t kSize = 8;

Tensor heads(std::int64_t count, std::int64_t columns, std::uint64_t seed) {
    torch::manual_seed(seed);
    // As attention has them: [B, T, heads, D], transposed.
    return torch::randn({2, columns, count, kSize}, torch::kDouble).transpose(1, 2);
}

/// Output and gradients of query, key and value.
std::vector<Tensor> all_of(bool blocked, std::int64_t key_heads, std::int64_t columns, torch::ScalarType type) {
    const Tensor query = heads(kHeads, columns, 1).to(type).requires_grad_();
    const Tensor key = heads(key_heads, columns, 2).to(type).requires_grad_();
    const Tensor value = heads(key_heads, columns, 3).to(type).requires_grad_();
    const double scale = 1 / std::sqrt(static_cast<double>(kSize));
    const Tensor out = blocked ? blocked_attention(query, key, value, scale)
                               : at::scaled_dot_product_attention(query, key, value, {}, 0.0, true, scale, true);
    (out * heads(kHeads, columns, 4).to(type)).sum().backward();
    return {out.detach(), query.grad(), key.grad(), value.grad()};
}

TEST(BlockedAttention, IsLibtorchsWithGroupedKeysAndOfEveryLength) {
    for (const std::int64_t key_heads : {1, 2, 4}) {
        for (const std::int64_t columns : {1, 5, 128, 129, 300}) {
            const auto got = all_of(true, key_heads, columns, torch::kDouble);
            const auto wanted = all_of(false, key_heads, columns, torch::kDouble);
            for (std::size_t i = 0; i < got.size(); ++i) {
                EXPECT_TRUE(torch::allclose(got[i], wanted[i], 1e-10, 1e-12))
                    << i << " " << key_heads << " " << columns;
            }
        }
    }
}

TEST(BlockedAttention, InBf16IsAsNearToFp64AsRoundedScoresAllow) {
    const auto got = all_of(true, 2, 300, torch::kBFloat16);
    const auto wanted = all_of(false, 2, 300, torch::kDouble);
    for (std::size_t i = 0; i < got.size(); ++i) {
        EXPECT_EQ(got[i].scalar_type(), torch::kBFloat16);
        const Tensor difference = got[i].to(torch::kDouble) - wanted[i];
        EXPECT_LT(difference.norm().item<double>(), 0.015 * wanted[i].norm().item<double>()) << i;
    }
}

}  // namespace
}  // namespace distilld::models
