#include <gtest/gtest.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>
#include <limits>
#include <map>
#include <vector>

#include "models/optimizers/block_quantizer.hpp"
#include "models/optimizers/layered_optimizer.hpp"

namespace distilld::models {
namespace {

using torch::Tensor;

constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.99;
constexpr double kEpsilon = 1e-8;

/// The values of bitsandbytes' create_dynamic_map(signed, 7, 8), written down from its description: fractions of
/// linspace(0.1, 1, n + 1), scaled by powers of ten.
std::vector<double> slow_map(bool is_signed) {
    std::vector<double> values{0.0, 1.0};
    for (int exponent = -6; exponent <= 0; ++exponent) {
        const int count = static_cast<int>(std::pow(2, exponent + 6 + (is_signed ? 0 : 1)));
        for (int i = 0; i < count; ++i) {
            const double low = 0.1 + 0.9 * i / count;
            const double high = 0.1 + 0.9 * (i + 1) / count;
            values.push_back(std::pow(10.0, exponent) * (low + high) / 2);
            if (is_signed) {
                values.push_back(-values.back());
            }
        }
    }
    std::ranges::sort(values);
    return values;
}

/// The nearest value by looking at all; the smaller of two as near.
double slow_value(const DynamicMap& map, float number) {
    double best = map.value(0);
    for (const float value : map.values()) {
        if (number < 0 && value == 0) {
            continue;
        }
        if (std::abs(static_cast<double>(value) - number) < std::abs(best - number)) {
            best = value;
        }
    }
    return best;
}

TEST(DynamicMap, HasTheValuesOfBitsandbytes) {
    for (const bool is_signed : {false, true}) {
        const DynamicMap map(is_signed);
        const std::vector<double> wanted = slow_map(is_signed);
        ASSERT_EQ(wanted.size(), 256U);
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            EXPECT_NEAR(map.values()[i], wanted[i], 1e-7 * std::abs(wanted[i])) << i;
        }
        EXPECT_EQ(map.value(255), 1.0F);
    }
    // Three of them as bitsandbytes prints them.
    EXPECT_NEAR(DynamicMap(true).value(0), -0.99296875, 1e-7);
    EXPECT_NEAR(DynamicMap(true).value(128), 5.5e-7, 1e-12);
    EXPECT_NEAR(DynamicMap(false).value(1), 3.25e-7, 1e-12);
}

TEST(DynamicMap, RoundsToTheNearestValueAndKeepsTheSign) {
    auto generator = torch::make_generator<torch::CPUGeneratorImpl>(5);
    for (const bool is_signed : {false, true}) {
        const DynamicMap map(is_signed);
        std::vector<float> numbers{0.0F, 1.0F, 1e-30F, 1e-8F, 2.7e-7F, 0.5F, 0.9999F};
        const Tensor exponents = 9 * torch::rand({20000}, generator, torch::kFloat);
        const Tensor drawn = torch::pow(10, -exponents);
        const auto* values = static_cast<const float*>(drawn.const_data_ptr());
        numbers.insert(numbers.end(), values, values + drawn.numel());
        for (const float value : map.values()) {  // the values themselves, and what is next to the middles
            numbers.push_back(std::abs(value));
        }
        for (const float middle : map.middles()) {
            numbers.push_back(std::abs(middle));
            numbers.push_back(std::nextafter(std::abs(middle), 0.0F));
            numbers.push_back(std::nextafter(std::abs(middle), 1.0F));
        }
        for (const float number : numbers) {
            for (const float sign : {1.0F, -1.0F}) {
                if (sign < 0 && !is_signed) {
                    continue;
                }
                const float x = sign * number;
                const double got = map.value(map.code(x));
                ASSERT_NEAR(std::abs(got - x), std::abs(slow_value(map, x) - x), 1e-6 * std::abs(x))
                    << x;  // ties of fp32
                if (x < 0) {
                    ASSERT_LT(got, 0) << x;
                }
            }
        }
    }
}

std::vector<ParameterGroup> make_groups(std::vector<std::int64_t> shape) {
    auto generator = torch::make_generator<torch::CPUGeneratorImpl>(3);
    std::vector<ParameterGroup> groups(1);
    groups[0].name = "layers.0";
    Parameter& parameter = groups[0].parameters.emplace_back();
    parameter.name = "matrix";
    parameter.master = torch::randn(shape, generator, torch::kFloat).requires_grad_(true);
    parameter.decays = true;
    return groups;
}

OptimizerOptions options() {
    return {
        .kind = OptimizerKind::adamw_8bit, .beta1 = kBeta1, .beta2 = kBeta2, .epsilon = kEpsilon, .weight_decay = 0.1};
}

Tensor gradient_of(int step, const Tensor& like) {
    auto generator = torch::make_generator<torch::CPUGeneratorImpl>(static_cast<std::uint64_t>(100 + step));
    // Of very different sizes from block to block and within one.
    return torch::randn(like.sizes(), generator, torch::kFloat) *
           torch::pow(10, -6 * torch::rand(like.sizes(), generator, torch::kFloat));
}

/// AdamW with blocks of 256 rounded numbers, in doubles, one number at a time.
class SlowAdamW8bit {
  public:
    explicit SlowAdamW8bit(const Tensor& weights)
        : weights_(weights.detach().flatten().to(torch::kDouble)), first_(weights.numel()), second_(weights.numel()) {}

    void step(const Tensor& gradient, double rate, double clip) {
        ++steps_;
        auto* weights = weights_.mutable_data_ptr<double>();
        const auto* slopes = static_cast<const float*>(gradient.const_data_ptr());
        const std::size_t count = first_.size();
        for (std::size_t begin = 0; begin < count; begin += 256) {
            const std::size_t end = std::min(begin + 256, count);
            double max1 = 0;
            double max2 = 0;
            for (std::size_t i = begin; i < end; ++i) {
                const double slope = slopes[i] * clip;
                first_[i] = kBeta1 * first_[i] + (1 - kBeta1) * slope;
                second_[i] = kBeta2 * second_[i] + (1 - kBeta2) * slope * slope;
                max1 = std::max(max1, std::abs(first_[i]));
                max2 = std::max(max2, second_[i]);
                weights[i] *= 1 - rate * 0.1;
                weights[i] -= rate / (1 - std::pow(kBeta1, steps_)) * first_[i] /
                              (std::sqrt(second_[i]) / std::sqrt(1 - std::pow(kBeta2, steps_)) + kEpsilon);
            }
            for (std::size_t i = begin; i < end; ++i) {
                first_[i] = slow_value(signed_, static_cast<float>(first_[i] / max1)) * max1;
                second_[i] = slow_value(unsigned_, static_cast<float>(second_[i] / max2)) * max2;
            }
        }
    }

    [[nodiscard]] const Tensor& weights() const { return weights_; }

  private:
    Tensor weights_;
    std::vector<double> first_, second_;
    DynamicMap signed_{true};
    DynamicMap unsigned_{false};
    int steps_ = 0;
};

TEST(AdamW8bit, FollowsASlowTranscription) {
    std::vector<ParameterGroup> groups = make_groups({71, 67});  // the last block is not full
    Tensor& weights = groups[0].parameters[0].master;
    SlowAdamW8bit wanted(weights);
    LayeredOptimizer optimizer(groups, make_update_rule(options()), UpdateMode::serial);
    const Tensor before = weights.detach().clone().flatten().to(torch::kDouble);
    for (int step = 0; step < 10; ++step) {
        weights.mutable_grad() = gradient_of(step, weights);
        wanted.step(weights.grad(), 1e-2, 0.5);
        optimizer.finish_step(1e-2, 0.5);
    }
    // A number on the border of two values may round to either where fp32 and fp64 differ in the last bit; a few do.
    const Tensor difference = (weights.detach().flatten().to(torch::kDouble) - wanted.weights()).abs();
    const Tensor moved = (wanted.weights() - before).abs();
    EXPECT_LT(difference.gt(1e-5).sum().item<double>(), 0.003 * static_cast<double>(difference.numel()));
    EXPECT_LT(difference.mean().item<double>(), 1e-4 * moved.mean().item<double>());
}

TEST(AdamW8bit, KeepsTwoBytesANumber) {
    std::vector<ParameterGroup> groups = make_groups({512, 512});
    const auto state_bytes = [&](OptimizerKind kind) {
        OptimizerOptions chosen = options();
        chosen.kind = kind;
        const LayeredOptimizer optimizer(groups, make_update_rule(chosen), UpdateMode::serial);
        std::uint64_t bytes = 0;
        for (const NamedTensor& state : optimizer.state()) {
            bytes += state.tensor.nbytes();
        }
        return bytes;
    };
    constexpr std::uint64_t kNumbers = 512 * 512;
    EXPECT_EQ(state_bytes(OptimizerKind::adamw), 8 * kNumbers);
    EXPECT_EQ(state_bytes(OptimizerKind::adamw_8bit), 2 * kNumbers + kNumbers / 256 * 8);
}

TEST(AdamW8bit, KeepsSmallTensorsAndTheEmbeddingIn32Bits) {
    std::vector<ParameterGroup> small = make_groups({63, 65});
    const LayeredOptimizer of_small(small, make_update_rule(options()), UpdateMode::serial);
    EXPECT_EQ(of_small.state()[0].tensor.scalar_type(), torch::kFloat);
    std::vector<ParameterGroup> embedding = make_groups({512, 64});
    embedding[0].name = "embedding";
    const LayeredOptimizer of_embedding(embedding, make_update_rule(options()), UpdateMode::serial);
    EXPECT_EQ(of_embedding.state()[0].tensor.scalar_type(), torch::kFloat);
}

TEST(AdamW8bit, GoesOnFromItsStateWithTheSameBits) {
    std::vector<ParameterGroup> whole = make_groups({512, 67});
    std::vector<ParameterGroup> resumed = make_groups({512, 67});
    LayeredOptimizer all(whole, make_update_rule(options()), UpdateMode::serial);
    LayeredOptimizer other(resumed, make_update_rule(options()), UpdateMode::lazy);
    const auto steps = [](LayeredOptimizer& optimizer, Tensor& weights, int from, int to) {
        for (int step = from; step < to; ++step) {
            optimizer.apply_all();
            weights.mutable_grad() = gradient_of(step, weights);
            optimizer.finish_step(1e-2, 1.0);
        }
        optimizer.apply_all();
    };
    Tensor& weights = whole[0].parameters[0].master;
    steps(all, weights, 0, 3);
    {
        const torch::NoGradGuard no_grad;
        resumed[0].parameters[0].master.copy_(weights);
        const NamedTensors from = all.state();
        NamedTensors to = other.state();
        ASSERT_EQ(from.size(), 4U);
        for (std::size_t i = 0; i < from.size(); ++i) {
            to[i].tensor.copy_(from[i].tensor);
        }
        other.reset(all.steps());
    }
    steps(all, weights, 3, 6);
    steps(other, resumed[0].parameters[0].master, 3, 6);
    EXPECT_TRUE(torch::equal(weights, resumed[0].parameters[0].master));
}

TEST(AdamW8bit, GivesTheSameBitsOnAnyNumberOfThreads) {
    const int usual = at::get_num_threads();
    std::vector<Tensor> results;
    for (const int threads : {1, 3}) {
        at::set_num_threads(threads);
        std::vector<ParameterGroup> groups = make_groups({3000, 1061});  // enough for three threads
        LayeredOptimizer optimizer(groups, make_update_rule(options()), UpdateMode::serial);
        Tensor& weights = groups[0].parameters[0].master;
        weights.mutable_grad() = gradient_of(0, weights);
        optimizer.finish_step(1e-2, 1.0);
        results.push_back(weights.detach());
    }
    at::set_num_threads(usual);
    EXPECT_TRUE(torch::equal(results[0], results[1]));
}

/// Mean squared error of a linear model after some steps.
double trained_error(OptimizerKind kind) {
    auto generator = torch::make_generator<torch::CPUGeneratorImpl>(11);
    const Tensor inputs = torch::randn({256, 64}, generator, torch::kFloat);
    const Tensor truth = torch::randn({128, 64}, generator, torch::kFloat);
    const Tensor outputs = inputs.mm(truth.t()) + 0.1 * torch::randn({256, 128}, generator, torch::kFloat);
    std::vector<ParameterGroup> groups = make_groups({128, 64});
    OptimizerOptions chosen = options();
    chosen.kind = kind;
    chosen.weight_decay = 0;
    LayeredOptimizer optimizer(groups, make_update_rule(chosen), UpdateMode::serial);
    Tensor& weights = groups[0].parameters[0].master;
    double error = 0;
    for (int step = 0; step < 800; ++step) {
        const Tensor loss = (inputs.mm(weights.t()) - outputs).square().mean();
        loss.backward();
        error = loss.item<double>();
        optimizer.finish_step(0.05 * (1.0 - step / 800.0), 1.0);
    }
    return error;
}

TEST(AdamW8bit, LearnsAsWellAsAdamW) {
    const double of_8bit = trained_error(OptimizerKind::adamw_8bit);
    const double of_adamw = trained_error(OptimizerKind::adamw);
    std::cout << "8 bit " << of_8bit << ", 32 bit " << of_adamw << ", ratio " << of_8bit / of_adamw << std::endl;
    EXPECT_LT(of_adamw, 0.02);  // it has learned; it began at about 128
    EXPECT_LT(of_8bit / of_adamw, 1.02);
}

}  // namespace
}  // namespace distilld::models
