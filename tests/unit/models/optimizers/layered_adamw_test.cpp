#include "models/optimizers/layered_adamw.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace distilld::models {
namespace {

using torch::Tensor;

/// Three groups of odd sizes; matrices and vectors.
std::vector<ParameterGroup> make_groups() {
    auto generator = torch::make_generator<torch::CPUGeneratorImpl>(3);
    std::vector<ParameterGroup> groups;
    for (int g = 0; g < 3; ++g) {
        ParameterGroup& group = groups.emplace_back();
        group.name = "group." + std::to_string(g);
        const std::string prefix = group.name + ".";
        const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
            group.parameters.emplace_back(prefix + name,
                                          torch::randn(shape, generator, torch::kFloat).requires_grad_(true));
        };
        add("matrix", {37 + g, 19});
        add("norm", {19});
    }
    return groups;
}

/// The same gradients for the same step, whoever asks.
void set_gradients(std::vector<ParameterGroup>& groups, int step, double size = 1.0) {
    auto generator = torch::make_generator<torch::CPUGeneratorImpl>(static_cast<std::uint64_t>(100 + step));
    for (ParameterGroup& group : groups) {
        for (auto& [name, parameter] : group.parameters) {
            parameter.mutable_grad() = size * torch::randn(parameter.sizes(), generator, torch::kFloat);
        }
    }
}

bool same_bits(const Tensor& a, const Tensor& b) {
    return a.sizes() == b.sizes() && std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

void expect_same_bits(const std::vector<ParameterGroup>& a, const std::vector<ParameterGroup>& b) {
    for (std::size_t g = 0; g < a.size(); ++g) {
        for (std::size_t i = 0; i < a[g].parameters.size(); ++i) {
            EXPECT_TRUE(same_bits(a[g].parameters[i].second, b[g].parameters[i].second)) << a[g].parameters[i].first;
        }
    }
}

TEST(LayeredAdamW, FollowsTorchsAdamW) {
    std::vector<ParameterGroup> ours = make_groups();
    std::vector<ParameterGroup> theirs = make_groups();
    const AdamWOptions options{0.9, 0.95, 1e-7, 0.1};
    LayeredAdamW optimizer(ours, options, UpdateMode::serial);
    std::vector<Tensor> matrices, norms;
    for (auto& group : theirs) {
        matrices.push_back(group.parameters[0].second);
        norms.push_back(group.parameters[1].second);
    }
    const auto adamw = [&](double decay) {
        auto chosen = std::make_unique<torch::optim::AdamWOptions>(1e-2);
        chosen->betas({0.9, 0.95}).eps(1e-7).weight_decay(decay);
        return chosen;
    };
    torch::optim::AdamW reference(
        {torch::optim::OptimizerParamGroup(matrices, adamw(0.1)), torch::optim::OptimizerParamGroup(norms, adamw(0.0))},
        torch::optim::AdamWOptions(1e-2));
    for (int step = 0; step < 20; ++step) {
        set_gradients(ours, step);
        set_gradients(theirs, step);
        std::vector<Tensor> all = matrices;
        all.insert(all.end(), norms.begin(), norms.end());
        const double norm = torch::nn::utils::clip_grad_norm_(all, 3.0);
        EXPECT_NEAR(optimizer.gradient_norm(), norm, 1e-5 * norm);
        optimizer.finish_step(1e-2, std::min(1.0, 3.0 / (optimizer.gradient_norm() + 1e-6)));
        reference.step();
    }
    EXPECT_EQ(optimizer.steps(), 20U);
    for (std::size_t g = 0; g < ours.size(); ++g) {
        for (std::size_t i = 0; i < 2; ++i) {
            const Tensor& a = ours[g].parameters[i].second;
            const Tensor& b = theirs[g].parameters[i].second;
            EXPECT_LT((a - b).abs().max().item<double>(), 2e-6) << ours[g].parameters[i].first;
        }
    }
}

TEST(LayeredAdamW, DecaysMatricesOnly) {
    std::vector<ParameterGroup> groups = make_groups();
    const std::vector<ParameterGroup> before = make_groups();
    LayeredAdamW optimizer(groups, {0.9, 0.999, 1e-8, 0.5}, UpdateMode::serial);
    for (auto& group : groups) {
        for (auto& [name, parameter] : group.parameters) {
            parameter.mutable_grad() = torch::zeros_like(parameter);
        }
    }
    optimizer.finish_step(0.1, 1.0);
    for (std::size_t g = 0; g < groups.size(); ++g) {
        const Tensor wanted = before[g].parameters[0].second * (1 - 0.1 * 0.5);
        EXPECT_LT((groups[g].parameters[0].second - wanted).abs().max().item<double>(), 1e-6);
        EXPECT_TRUE(same_bits(groups[g].parameters[1].second, before[g].parameters[1].second));
    }
}

TEST(LayeredAdamW, LazyGivesTheBitsOfSerial) {
    std::vector<ParameterGroup> serial_groups = make_groups();
    std::vector<ParameterGroup> lazy_groups = make_groups();
    const AdamWOptions options{0.9, 0.999, 1e-8, 0.01};
    LayeredAdamW serial(serial_groups, options, UpdateMode::serial);
    LayeredAdamW lazy(lazy_groups, options, UpdateMode::lazy);
    for (int step = 0; step < 20; ++step) {
        const double rate = 1e-3 * (step % 5);  // 0 is among them
        set_gradients(serial_groups, step);
        const double clip = std::min(1.0, 2.0 / serial.gradient_norm());
        ASSERT_LT(clip, 1.0);
        serial.finish_step(rate, clip);
        EXPECT_FALSE(serial.pending());

        // Groups in forward order, in another order, one at a time, or not until the next step closes.
        if (step % 4 == 0) {
            for (std::size_t group = 0; group < lazy_groups.size(); ++group) {
                EXPECT_EQ(lazy.apply(group), step > 0);
            }
        } else if (step % 4 == 1) {
            EXPECT_TRUE(lazy.apply(2));
            EXPECT_FALSE(lazy.apply(2));
            EXPECT_TRUE(lazy.apply_next());
            EXPECT_TRUE(lazy.apply_next());
            EXPECT_FALSE(lazy.apply_next());
        } else {
            lazy.apply_all();
        }
        set_gradients(lazy_groups, step);
        EXPECT_EQ(lazy.gradient_norm() > 0, true);
        lazy.finish_step(rate, clip);
        EXPECT_TRUE(lazy.pending());
    }
    lazy.apply_all();
    expect_same_bits(serial_groups, lazy_groups);
    const auto serial_state = serial.state();
    const auto lazy_state = lazy.state();
    ASSERT_EQ(serial_state.size(), lazy_state.size());
    for (std::size_t i = 0; i < serial_state.size(); ++i) {
        EXPECT_EQ(serial_state[i].first, lazy_state[i].first);
        EXPECT_TRUE(same_bits(serial_state[i].second, lazy_state[i].second)) << serial_state[i].first;
    }
}

TEST(LayeredAdamW, AnUpdateIsPendingUntilItIsApplied) {
    std::vector<ParameterGroup> groups = make_groups();
    const std::vector<ParameterGroup> before = make_groups();
    LayeredAdamW optimizer(groups, {}, UpdateMode::lazy);
    set_gradients(groups, 0);
    optimizer.finish_step(1e-2, 1.0);
    expect_same_bits(groups, before);
    EXPECT_THROW((void)optimizer.gradient_norm(), c10::Error);
    EXPECT_TRUE(optimizer.apply(1));
    EXPECT_TRUE(same_bits(groups[0].parameters[0].second, before[0].parameters[0].second));
    EXPECT_FALSE(same_bits(groups[1].parameters[0].second, before[1].parameters[0].second));
    EXPECT_FALSE(groups[1].parameters[0].second.grad().defined());
    EXPECT_TRUE(groups[0].parameters[0].second.grad().defined());
}

TEST(LayeredAdamW, LearningRateZeroKeepsTheVeryBits) {
    std::vector<ParameterGroup> groups = make_groups();
    {
        const torch::NoGradGuard no_grad;
        groups[0].parameters[0].second.select(0, 0).fill_(-0.0);
    }
    const Tensor before = groups[0].parameters[0].second.detach().clone();
    LayeredAdamW optimizer(groups, {0.9, 0.999, 1e-8, 0.1}, UpdateMode::serial);
    for (int step = 0; step < 3; ++step) {
        set_gradients(groups, step);
        optimizer.finish_step(0.0, 0.5);
    }
    EXPECT_TRUE(same_bits(groups[0].parameters[0].second, before));
    EXPECT_GT(optimizer.state()[0].second.norm().item<double>(), 0);  // the moments moved
}

TEST(LayeredAdamW, ZeroRateStepsMoveTheMomentsAsOtherStepsDo) {
    std::vector<ParameterGroup> still = make_groups();
    std::vector<ParameterGroup> moving = make_groups();
    LayeredAdamW a(still, {}, UpdateMode::serial);
    LayeredAdamW b(moving, {}, UpdateMode::serial);
    for (int step = 0; step < 5; ++step) {
        set_gradients(still, step);
        set_gradients(moving, step);
        a.finish_step(0.0, 0.25);
        b.finish_step(1e-3, 0.25);
    }
    const auto at_rest = a.state();
    const auto in_motion = b.state();
    for (std::size_t i = 0; i < at_rest.size(); ++i) {
        EXPECT_TRUE(torch::allclose(at_rest[i].second, in_motion[i].second, 1e-5, 1e-9)) << at_rest[i].first;
    }
}

TEST(LayeredAdamW, AParameterWithoutAGradientIsLeftAlone) {
    std::vector<ParameterGroup> groups = make_groups();
    const std::vector<ParameterGroup> before = make_groups();
    LayeredAdamW optimizer(groups, {0.9, 0.999, 1e-8, 0.1}, UpdateMode::serial);
    set_gradients(groups, 0);
    groups[1].parameters[0].second.mutable_grad() = Tensor();
    optimizer.finish_step(0.1, 1.0);
    EXPECT_TRUE(same_bits(groups[1].parameters[0].second, before[1].parameters[0].second));
    EXPECT_FALSE(same_bits(groups[1].parameters[1].second, before[1].parameters[1].second));
}

TEST(SumOfSquares, IsExactAndDoesNotDependOnTheThreads) {
    auto generator = torch::make_generator<torch::CPUGeneratorImpl>(1);
    for (const std::int64_t count : {1, 15, 17, 1023, 1025, 40000, 300001}) {
        const Tensor tensor = torch::randn({count}, generator, torch::kFloat);
        const double wanted = tensor.to(torch::kDouble).square().sum().item<double>();
        const int threads = at::get_num_threads();
        at::set_num_threads(1);
        const double alone = sum_of_squares(tensor);
        at::set_num_threads(2);
        const double together = sum_of_squares(tensor);
        at::set_num_threads(threads);
        EXPECT_NEAR(alone, wanted, 1e-6 * wanted) << count;
        EXPECT_EQ(alone, together) << count;
    }
    Tensor bad = torch::zeros({5000});
    bad[4321] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(sum_of_squares(bad)));
    bad[4321] = std::numeric_limits<float>::infinity();
    EXPECT_FALSE(std::isfinite(sum_of_squares(bad)));
}

}  // namespace
}  // namespace distilld::models
