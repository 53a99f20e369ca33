#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "models/kernels/accumulate.hpp"
#include "models/kernels/few_rows.hpp"
#include "models/kernels/gated.hpp"
#include "models/kernels/instructions.hpp"
#include "models/kernels/numbers.hpp"
#include "models/kernels/one_query.hpp"
#include "models/kernels/parallel.hpp"
#include "models/kernels/rms_norm.hpp"
#include "models/kernels/rotation.hpp"
#include "tests/unit/models/kernels/instructions_here.hpp"

namespace distilld::kernels {
namespace {

using torch::Tensor;

constexpr double kEpsilon = 1e-5;

/// Calls libtorch with this many threads.
class Threads {
  public:
    explicit Threads(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
    ~Threads() { at::set_num_threads(before_); }
    Threads(const Threads&) = delete;
    Threads& operator=(const Threads&) = delete;

  private:
    int before_;
};

Tensor random(std::vector<std::int64_t> shape, torch::ScalarType type, std::uint64_t seed = 1) {
    torch::manual_seed(seed);
    return torch::randn(shape, torch::kDouble).mul_(2).to(type);
}

double distance(const Tensor& got, const Tensor& wanted) {
    const Tensor exact = wanted.to(torch::kDouble);
    return ((got.to(torch::kDouble) - exact).norm() / exact.norm()).item<double>();
}

/// The norm in libtorch's operations.
Tensor normed(const Tensor& stream, const Tensor& weight) {
    const Tensor wide = stream.to(stream.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat);
    return weight * (wide * torch::rsqrt(wide.square().mean(-1, true) + kEpsilon)).to(stream.scalar_type());
}

void expect_rows_as_alone(torch::ScalarType type, Bf16Instructions instructions) {
    constexpr std::int64_t kRows = 37;
    const auto product = [instructions](const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias) {
        return few_rows_product(x, weight, bias, instructions);
    };
    for (const auto& [depth, columns] :
         std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {8, 5}, {16, 4}, {33, 7}, {64, 300}, {300, 64}}) {
        const Tensor x = random({kRows, depth}, type, 1);
        const Tensor weight = random({columns, depth}, type, 2);
        const Tensor bias = random({columns}, type, 3);
        const Tensor all = product(x, weight, bias);
        const Tensor exact = at::linear(x.to(torch::kDouble), weight.to(torch::kDouble), bias.to(torch::kDouble));
        EXPECT_LT(distance(all, exact), type == torch::kBFloat16 ? 4e-3 : 1e-6);
        for (const int threads : {1, 3}) {
            const Threads count(threads);
            for (std::int64_t begin = 0; begin < kRows; begin += 4) {
                for (const std::int64_t size : {std::int64_t{1}, std::min<std::int64_t>(5, kRows - begin)}) {
                    const Tensor some = product(x.narrow(0, begin, size), weight, bias);
                    EXPECT_TRUE(torch::equal(some, all.narrow(0, begin, size)));
                }
            }
        }
        EXPECT_LT(distance(product(x.unsqueeze(0), weight, {})[0], exact - bias.to(torch::kDouble)),
                  type == torch::kBFloat16 ? 4e-3 : 1e-6);
    }
}

TEST(Kernels, FewRowsAreMultipliedAsRowsAlone) {
    for (const auto type : {torch::kFloat, torch::kBFloat16, torch::kDouble}) {
        expect_rows_as_alone(type, Bf16Instructions::none);
    }
    for (const Bf16Instructions instructions : instructions_here()) {
        expect_rows_as_alone(torch::kBFloat16, instructions);
    }
    EXPECT_FALSE(takes_few_rows(random({4, 8}, torch::kFloat).t()));
}

TEST(Kernels, OneQueryAttendsAsAlone) {
    constexpr std::int64_t kHeads = 6;
    constexpr double kScale = 0.3;
    for (const auto type : {torch::kFloat, torch::kBFloat16, torch::kDouble}) {
        for (const std::int64_t size : {8, 32, 72}) {
            const std::vector<std::int64_t> lengths{1, 16, 3, 200};
            const Tensor query = random({4, kHeads, size}, type);
            // A part of a joint product.
            const auto joint = random({4, 4, size}, type, 30).split(2, 1);
            std::vector<Tensor> exact;
            const auto caches = [&] {
                std::vector<SeenPositions> sequences;
                for (std::size_t i = 0; i < lengths.size(); ++i) {
                    sequences.push_back(
                        {random({2, 256, size}, type, 2 + i), random({2, 256, size}, type, 12 + i), 5, 4 + lengths[i]});
                }
                return sequences;
            };
            const std::vector<SeenPositions> sequences = caches();
            const Tensor all = one_query_attention(query, joint[0], joint[1], sequences, kScale);
            const std::vector<SeenPositions> before = caches();
            for (std::size_t i = 0; i < lengths.size(); ++i) {
                const auto row = static_cast<std::int64_t>(i);
                const auto written = [&](const Tensor& cache, const Tensor& rows) {
                    const Tensor with = cache.clone();
                    with.select(1, sequences[i].length).copy_(rows[row]);
                    return with;
                };
                const Tensor keys = written(before[i].keys, joint[0]);
                const Tensor values = written(before[i].values, joint[1]);
                EXPECT_TRUE(torch::equal(sequences[i].keys, keys) && torch::equal(sequences[i].values, values)) << i;
                const auto wide = [&](const Tensor& heads) {
                    return heads.narrow(1, 5, lengths[i]).to(torch::kDouble).repeat_interleave(kHeads / 2, 0);
                };
                const Tensor own = query[row].to(torch::kDouble).unsqueeze(1);
                const Tensor weights = torch::softmax(torch::matmul(own, wide(keys).transpose(1, 2)) * kScale, -1);
                exact.push_back(torch::matmul(weights, wide(values)).flatten());
            }
            EXPECT_LT(distance(all, torch::stack(exact)), type == torch::kBFloat16 ? 4e-3 : 2e-6) << type << size;
            for (const int threads : {1, 3}) {
                const Threads count(threads);
                const std::vector<SeenPositions> again = caches();
                for (std::size_t i = 0; i < lengths.size(); ++i) {
                    const auto row = static_cast<std::int64_t>(i);
                    const auto of_row = [row](const Tensor& rows) { return rows.narrow(0, row, 1); };
                    const Tensor alone =
                        one_query_attention(of_row(query), of_row(joint[0]), of_row(joint[1]), {again[i]}, kScale);
                    EXPECT_TRUE(torch::equal(alone[0], all[row])) << type << " " << size << " " << row;
                }
            }
        }
    }
}

TEST(Kernels, OneQueryNeedsRoomForItsPosition) {
    const Tensor rows = random({1, 2, 8}, torch::kFloat);
    const SeenPositions full{random({2, 4, 8}, torch::kFloat), random({2, 4, 8}, torch::kFloat), 0, 4};
    EXPECT_THROW(static_cast<void>(one_query_attention(rows, rows, rows, {full}, 1)), c10::Error);
}

TEST(Kernels, TakeEachItemOnceOnAnyNumberOfThreads) {
    for (const int threads : {1, 2, 3}) {
        const Threads count(threads);
        for (const std::int64_t items : {0, 1, 7, 1000}) {
            std::vector<std::atomic<int>> seen(static_cast<std::size_t>(items));
            in_parallel(items, 3, [&](std::int64_t begin, std::int64_t end) {
                for (std::int64_t i = begin; i < end; ++i) {
                    ++seen[static_cast<std::size_t>(i)];
                }
            });
            for (const auto& times : seen) {
                EXPECT_EQ(times, 1);
            }
        }
        EXPECT_THROW(in_parallel(100, 1, [](std::int64_t, std::int64_t) { throw std::runtime_error("no"); }),
                     std::runtime_error);
    }
}

TEST(Kernels, NormIsThatOfLibtorch) {
    // The mean's order of addition differs, so a value on the edge may round to its neighbour.
    for (const auto& [type, bound] :
         {std::pair{torch::kDouble, 1e-14}, {torch::kFloat, 2e-7}, {torch::kBFloat16, 1e-3}}) {
        for (const std::int64_t size : {1, 16, 37, 384}) {
            const Tensor input = random({130, size}, type);
            const Tensor addition = random({130, size}, type, 2);
            const Tensor weight = random({size}, type, 3);
            const NormedRows plain = rms_norm(input, {}, weight, kEpsilon);
            EXPECT_TRUE(plain.stream.is_same(input));
            EXPECT_LT(distance(plain.normed, normed(input, weight)), bound) << type << " " << size;
            const NormedRows both = rms_norm(input, addition, weight, kEpsilon);
            EXPECT_TRUE(torch::equal(both.stream, input + addition)) << type << " " << size;
            EXPECT_LT(distance(both.normed, normed(input + addition, weight)), bound) << type << " " << size;
        }
    }
}

TEST(Kernels, GradientsOfTheNormAreThoseOfAutograd) {
    for (const auto& [type, bound] :
         {std::pair{torch::kDouble, 1e-12}, {torch::kFloat, 1e-5}, {torch::kBFloat16, 2e-2}}) {
        const Tensor stream = random({130, 37}, type);
        const Tensor weight = random({37}, type, 3);
        const Tensor gradient = random({130, 37}, type, 4);
        const Tensor passed = random({130, 37}, type, 5);
        const Tensor exact = stream.to(torch::kDouble).requires_grad_();
        const Tensor exact_weight = weight.to(torch::kDouble).requires_grad_();
        const Tensor out = normed(exact, exact_weight);
        ((out * gradient.to(torch::kDouble)).sum() + (exact * passed.to(torch::kDouble)).sum()).backward();
        const Tensor scale = rms_norm(stream, {}, weight, kEpsilon).scale;
        const NormGradients got = rms_norm_backward(gradient, passed, stream, scale, weight, true);
        EXPECT_LT(distance(got.stream, exact.grad()), bound) << type;
        EXPECT_LT(distance(got.weight, exact_weight.grad()), bound) << type;
        EXPECT_EQ(got.weight.scalar_type(), type == torch::kDouble ? torch::kDouble : torch::kFloat);
        const NormGradients alone = rms_norm_backward(gradient, {}, stream, scale, weight, false);
        EXPECT_LT(distance(alone.stream + passed, exact.grad()), bound) << type;
        EXPECT_FALSE(alone.weight.defined());
    }
}

TEST(Kernels, GatedSiluIsThatOfLibtorch) {
    for (const auto& [type, bound] :
         {std::pair{torch::kDouble, 1e-14}, {torch::kFloat, 2e-7}, {torch::kBFloat16, 1e-3}}) {
        const Tensor gate = random({9, 129}, type).mul_(5);
        const Tensor up = random({9, 129}, type, 2);
        const Tensor gradient = random({9, 129}, type, 3);
        EXPECT_LT(distance(silu_gated(gate, up), torch::silu(gate) * up), bound) << type;
        const Tensor exact_gate = gate.to(torch::kDouble).requires_grad_();
        const Tensor exact_up = up.to(torch::kDouble).requires_grad_();
        (torch::silu(exact_gate) * exact_up * gradient.to(torch::kDouble)).sum().backward();
        const auto [of_gate, of_up] = silu_gated_backward(gradient, gate, up);
        const double back = type == torch::kBFloat16 ? 1e-2 : bound * 10;
        EXPECT_LT(distance(of_gate, exact_gate.grad()), back) << type;
        EXPECT_LT(distance(of_up, exact_up.grad()), back) << type;
    }
}

TEST(Kernels, GatedSiluOfExtremeValuesIsFiniteWhereItShouldBe) {
    const float large = std::numeric_limits<float>::max();
    const Tensor gate = torch::tensor({-large, -1000.0F, -88.0F, 0.0F, 88.0F, 1000.0F, large, NAN, INFINITY});
    const Tensor got = silu_gated(gate, torch::ones_like(gate));
    EXPECT_TRUE(torch::allclose(got, torch::silu(gate), 1e-6, 1e-30, /*equal_nan=*/true)) << got;
    const auto [of_gate, of_up] = silu_gated_backward(torch::ones({7}), gate.narrow(0, 0, 7), torch::ones({7}));
    EXPECT_TRUE(torch::isfinite(of_gate).all().item<bool>()) << of_gate;
    EXPECT_TRUE(torch::isfinite(of_up).all().item<bool>()) << of_up;
}

TEST(Kernels, RotationHasTheBitsOfLibtorchsOperations) {
    for (const auto type : {torch::kDouble, torch::kFloat, torch::kBFloat16}) {
        const Tensor input = random({2, 5, 3, 12}, type);
        const Tensor angles = random({5, 6}, torch::kDouble, 2);
        const Tensor cos = angles.cos().to(type);
        const Tensor sin = angles.sin().to(type);
        const Tensor first = input.narrow(3, 0, 6);
        const Tensor second = input.narrow(3, 6, 6);
        const Tensor c = cos.unsqueeze(1);
        const Tensor s = sin.unsqueeze(1);
        const Tensor wanted = torch::cat({first * c - second * s, second * c + first * s}, -1);
        EXPECT_TRUE(torch::equal(rotated(input, cos, sin, 1), wanted)) << type;
        const Tensor back = torch::cat({first * c + second * s, second * c - first * s}, -1);
        EXPECT_TRUE(torch::equal(rotated(input, cos, sin, -1), back)) << type;
    }
}

TEST(Kernels, AnAddedGradientHasTheBitsOfLibtorchsAddition) {
    const Tensor total = random({33, 7}, torch::kFloat);
    const Tensor addition = random({33, 7}, torch::kBFloat16, 2);
    Tensor got = total.clone();
    accumulate(got, addition, torch::kFloat);
    EXPECT_TRUE(torch::equal(got, total + addition));
    EXPECT_THROW(accumulate(got, addition.t().contiguous(), torch::kFloat), c10::Error);
    Tensor first;
    accumulate(first, addition, torch::kFloat);
    EXPECT_TRUE(torch::equal(first, addition.to(torch::kFloat)));
}

TEST(Kernels, NoBitDependsOnTheNumberOfThreads) {
    const auto all = [] {
        const Tensor stream = random({1001, 256}, torch::kBFloat16);
        const Tensor weight = random({256}, torch::kBFloat16, 2);
        const Tensor gradient = random({1001, 256}, torch::kBFloat16, 3);
        const NormedRows rows = rms_norm(stream, gradient, weight, kEpsilon);
        const NormGradients back = rms_norm_backward(gradient, stream, rows.stream, rows.scale, weight, true);
        const auto [of_gate, of_up] = silu_gated_backward(gradient, stream, rows.normed);
        return std::vector{rows.normed, back.stream, back.weight, silu_gated(stream, gradient), of_gate, of_up};
    };
    std::vector<Tensor> one;
    {
        const Threads single(1);
        one = all();
    }
    const Threads several(3);
    const std::vector<Tensor> three = all();
    for (std::size_t i = 0; i < one.size(); ++i) {
        EXPECT_TRUE(torch::equal(one[i], three[i])) << i;
    }
}

/// What the kernels are made of.
struct Sample {
    DISTILLD_INLINE static void run(const float* values, float* out, std::int64_t size) {
        for (std::int64_t i = 0; i < size; ++i) {
            out[i] = rounded<c10::BFloat16>(exponential(values[i]) * values[i] + values[size - 1 - i]);
        }
        out[size] = lane_sum<float>(size, [values](std::int64_t i) { return values[i] * values[i]; });
    }
};

TEST(Kernels, EverySetOfInstructionsComputesTheSameBits) {
    constexpr std::int64_t kSize = 1003;
    const Tensor values = random({kSize}, torch::kFloat).mul_(20);
    const auto* data = static_cast<const float*>(values.const_data_ptr());
    std::vector<float> plain(kSize + 1);
    Sample::run(data, plain.data(), kSize);
    std::vector<float> widest(kSize + 1);
    run_widest<Sample>(data, widest.data(), kSize);
    EXPECT_EQ(widest, plain);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("x86-64-v3")) {
        std::vector<float> avx2(kSize + 1);
        run_v3<Sample>(data, avx2.data(), kSize);
        EXPECT_EQ(avx2, plain);
    }
#endif
    for (std::int64_t i = 0; i < kSize; ++i) {
        const float x = data[i];
        const double exact = std::exp(static_cast<double>(x));
        if (exact > 1e-37 && exact < 3e38) {
            EXPECT_NEAR(exponential(x), exact, 3e-7 * exact) << x;
        }
    }
}

}  // namespace
}  // namespace distilld::kernels
