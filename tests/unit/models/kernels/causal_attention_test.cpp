#include "models/kernels/causal_attention.hpp"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/unit/models/kernels/instructions_here.hpp"

namespace distilld::kernels {
namespace {

using torch::Tensor;

struct Shape {
    std::int64_t batch;
    std::int64_t heads;
    std::int64_t key_heads;
    std::int64_t length;
    std::int64_t size;
};

const std::vector<Shape> kShapes = {{1, 1, 1, 1, 32},   {2, 4, 2, 2, 64},  {1, 2, 2, 31, 128},
                                    {2, 3, 1, 33, 20},  {1, 6, 2, 65, 64}, {1, 4, 2, 97, 80},
                                    {2, 2, 1, 128, 32}, {1, 2, 1, 200, 7}, {1, 1, 1, 300, 256}};

/// [B, heads, T, D] with positions before heads in memory, as projections are.
Tensor random_heads(const Shape& shape, std::int64_t heads, std::uint64_t seed) {
    torch::manual_seed(seed);
    return torch::randn({shape.batch, shape.length, heads, shape.size}).to(torch::kBFloat16).transpose(1, 2);
}

double distance(const Tensor& got, const Tensor& exact) {
    return ((got.to(torch::kDouble) - exact).norm() / (exact.norm() + 1e-30)).item<double>();
}

struct Case {
    Tensor query;
    Tensor key;
    Tensor value;
    Tensor gradient;
    double scale;

    explicit Case(const Shape& shape)
        : query(random_heads(shape, shape.heads, 1)),
          key(random_heads(shape, shape.key_heads, 2)),
          value(random_heads(shape, shape.key_heads, 3)),
          gradient(random_heads(shape, shape.heads, 4)),
          scale(1.0 / std::sqrt(static_cast<double>(shape.size))) {}

    [[nodiscard]] std::vector<Tensor> run(Bf16Instructions instructions) const {
        const AttendedHeads attended = causal_attention(query, key, value, scale, instructions);
        const AttentionGradients back =
            causal_attention_backward(gradient, query, key, value, attended, scale, instructions);
        return {attended.out, attended.log_sums, back.query, back.key, back.value};
    }
};

TEST(CausalAttention, IsThatOfLibtorchInFp64) {
    for (const Bf16Instructions instructions : instructions_here()) {
        for (const Shape& shape : kShapes) {
            const Case test(shape);
            const std::vector<Tensor> got = test.run(instructions);
            std::vector<Tensor> exact;
            for (const Tensor& heads : {test.query, test.key, test.value}) {
                exact.push_back(heads.to(torch::kDouble).requires_grad_());
            }
            const std::int64_t times = shape.heads / shape.key_heads;
            const Tensor scores =
                torch::matmul(exact[0], exact[1].repeat_interleave(times, 1).transpose(-1, -2)) * test.scale;
            const Tensor later = torch::ones({shape.length, shape.length}, torch::kBool).triu(1);
            const Tensor hidden = scores.masked_fill(later, -INFINITY);
            const Tensor out = torch::matmul(torch::softmax(hidden, -1), exact[2].repeat_interleave(times, 1));
            (out * test.gradient.to(torch::kDouble)).sum().backward();
            const std::vector<Tensor> wanted = {out, torch::logsumexp(hidden, -1), exact[0].grad(), exact[1].grad(),
                                                exact[2].grad()};
            for (std::size_t i = 0; i < got.size(); ++i) {
                EXPECT_EQ(got[i].sizes(), wanted[i].sizes());
                // The gradients of one position's query and key are exactly 0, and rounded differences of bf16 here.
                const bool nothing = shape.length == 1 && (i == 2 || i == 3);
                const double off = nothing ? got[i].abs().max().item<double>() : distance(got[i], wanted[i]);
                EXPECT_LT(off, 1e-2) << static_cast<int>(instructions) << " length " << shape.length << " size "
                                     << shape.size << " result " << i;
            }
        }
    }
}

TEST(CausalAttention, NoBitDependsOnThreadsOtherRowsOrLaterPositions) {
    const Case test({3, 4, 2, 150, 64});
    for (const Bf16Instructions instructions : instructions_here()) {
        const int before = at::get_num_threads();
        at::set_num_threads(1);
        const std::vector<Tensor> one = test.run(instructions);
        at::set_num_threads(3);
        const std::vector<Tensor> three = test.run(instructions);
        at::set_num_threads(before);
        for (std::size_t i = 0; i < one.size(); ++i) {
            EXPECT_TRUE(torch::equal(one[i], three[i])) << i;
        }
        const auto part = [](const Tensor& heads) { return heads.narrow(0, 1, 1).narrow(2, 0, 70); };
        const Tensor alone =
            causal_attention(part(test.query), part(test.key), part(test.value), test.scale, instructions).out;
        EXPECT_TRUE(torch::equal(alone, part(one[0])));
    }
}

TEST(CausalAttention, AnInvalidNumberIsSeenFromItsPositionOn) {
    const Case test({1, 2, 1, 40, 32});
    for (const Bf16Instructions instructions : instructions_here()) {
        Tensor key = test.key.clone();
        key[0][0][5][3] = NAN;
        const Tensor out = causal_attention(test.query, key, test.value, test.scale, instructions).out;
        EXPECT_TRUE(torch::isfinite(out.narrow(2, 0, 5)).all().item<bool>());
        EXPECT_TRUE(torch::isnan(out.narrow(2, 5, 35)).all().item<bool>());
    }
}

TEST(CausalAttention, TakesBf16OnlyWithContiguousHeads) {
    const Case test({1, 2, 1, 4, 32});
    EXPECT_EQ(takes_causal_attention(test.query, test.key, test.value), bf16_instructions() != Bf16Instructions::none);
    EXPECT_FALSE(takes_causal_attention(test.query.to(torch::kFloat), test.key, test.value));
    EXPECT_FALSE(takes_causal_attention(test.query, test.key, test.value.transpose(2, 3)));
}

}  // namespace
}  // namespace distilld::kernels
