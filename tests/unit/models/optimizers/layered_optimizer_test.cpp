#include "models/optimizers/layered_optimizer.hpp"

#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "models/optimizers/state_sizes.hpp"

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
            Parameter& parameter = group.parameters.emplace_back();
            parameter.name = prefix + name;
            parameter.master = torch::randn(shape, generator, torch::kFloat).requires_grad_(true);
            parameter.decays = shape.size() >= 2;
        };
        add("matrix", {37 + g, 190});  // 8-bit state keeps 32 bits of fewer than 4,096 numbers
        add("norm", {190});
    }
    return groups;
}

/// The same gradients for the same step, whoever asks.
void set_gradients(std::vector<ParameterGroup>& groups, int step, double size = 1.0) {
    auto generator = torch::make_generator<torch::CPUGeneratorImpl>(static_cast<std::uint64_t>(100 + step));
    for (ParameterGroup& group : groups) {
        for (Parameter& parameter : group.parameters) {
            parameter.master.mutable_grad() = size * torch::randn(parameter.master.sizes(), generator, torch::kFloat);
        }
    }
}

bool same_bits(const Tensor& a, const Tensor& b) {
    return a.sizes() == b.sizes() && std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

void expect_same_bits(const std::vector<ParameterGroup>& a, const std::vector<ParameterGroup>& b) {
    for (std::size_t g = 0; g < a.size(); ++g) {
        for (std::size_t i = 0; i < a[g].parameters.size(); ++i) {
            EXPECT_TRUE(same_bits(a[g].parameters[i].master, b[g].parameters[i].master)) << a[g].parameters[i].name;
        }
    }
}

std::unique_ptr<UpdateRule> rule(const OptimizerOptions& options) {
    return make_update_rule(options);
}

/// What all kinds have in common.
class AnyOptimizer : public testing::TestWithParam<OptimizerKind> {
  protected:
    [[nodiscard]] static OptimizerOptions of_kind(double weight_decay) {
        return {.kind = GetParam(), .weight_decay = weight_decay, .momentum = 0.9};
    }
};
INSTANTIATE_TEST_SUITE_P(LayeredOptimizer, AnyOptimizer,
                         testing::Values(OptimizerKind::adamw, OptimizerKind::adamw_8bit, OptimizerKind::sgd),
                         [](const auto& chosen) { return std::string(to_string(chosen.param)); });

TEST(LayeredOptimizer, FollowsTorchsAdamW) {
    std::vector<ParameterGroup> ours = make_groups();
    std::vector<ParameterGroup> theirs = make_groups();
    LayeredOptimizer optimizer(ours, rule({.beta2 = 0.95, .epsilon = 1e-7, .weight_decay = 0.1}), UpdateMode::serial);
    std::vector<Tensor> matrices, norms;
    for (auto& group : theirs) {
        matrices.push_back(group.parameters[0].master);
        norms.push_back(group.parameters[1].master);
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
            const Tensor& a = ours[g].parameters[i].master;
            const Tensor& b = theirs[g].parameters[i].master;
            EXPECT_LT((a - b).abs().max().item<double>(), 2e-6) << ours[g].parameters[i].name;
        }
    }
}

TEST(LayeredOptimizer, FollowsTorchsSgd) {
    for (const double momentum : {0.0, 0.9}) {
        std::vector<ParameterGroup> ours = make_groups();
        std::vector<ParameterGroup> theirs = make_groups();
        LayeredOptimizer optimizer(ours, rule({.kind = OptimizerKind::sgd, .weight_decay = 0.1, .momentum = momentum}),
                                   UpdateMode::serial);
        std::vector<Tensor> matrices, norms;
        for (auto& group : theirs) {
            matrices.push_back(group.parameters[0].master);
            norms.push_back(group.parameters[1].master);
        }
        const auto sgd = [&](double decay) {
            auto chosen = std::make_unique<torch::optim::SGDOptions>(1e-2);
            chosen->momentum(momentum).weight_decay(decay);
            return chosen;
        };
        torch::optim::SGD reference(
            {torch::optim::OptimizerParamGroup(matrices, sgd(0.1)), torch::optim::OptimizerParamGroup(norms, sgd(0.0))},
            torch::optim::SGDOptions(1e-2));
        for (int step = 0; step < 20; ++step) {
            set_gradients(ours, step, 2.0);
            set_gradients(theirs, step);
            optimizer.finish_step(1e-2, 0.5);
            reference.step();
        }
        for (std::size_t g = 0; g < ours.size(); ++g) {
            for (std::size_t i = 0; i < 2; ++i) {
                const Tensor& a = ours[g].parameters[i].master;
                const Tensor& b = theirs[g].parameters[i].master;
                EXPECT_LT((a - b).abs().max().item<double>(), 1e-6) << ours[g].parameters[i].name;
            }
        }
        EXPECT_EQ(optimizer.state().size(), momentum == 0 ? 0U : 6U);
    }
}

TEST(LayeredOptimizer, DecaysMatricesOnly) {
    std::vector<ParameterGroup> groups = make_groups();
    const std::vector<ParameterGroup> before = make_groups();
    LayeredOptimizer optimizer(groups, rule({.weight_decay = 0.5}), UpdateMode::serial);
    for (auto& group : groups) {
        for (Parameter& parameter : group.parameters) {
            parameter.master.mutable_grad() = torch::zeros_like(parameter.master);
        }
    }
    optimizer.finish_step(0.1, 1.0);
    for (std::size_t g = 0; g < groups.size(); ++g) {
        const Tensor wanted = before[g].parameters[0].master * (1 - 0.1 * 0.5);
        EXPECT_LT((groups[g].parameters[0].master - wanted).abs().max().item<double>(), 1e-6);
        EXPECT_TRUE(same_bits(groups[g].parameters[1].master, before[g].parameters[1].master));
    }
}

TEST_P(AnyOptimizer, LazyGivesTheBitsOfSerial) {
    std::vector<ParameterGroup> serial_groups = make_groups();
    std::vector<ParameterGroup> lazy_groups = make_groups();
    LayeredOptimizer serial(serial_groups, rule(of_kind(0.01)), UpdateMode::serial);
    LayeredOptimizer lazy(lazy_groups, rule(of_kind(0.01)), UpdateMode::lazy);
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
        EXPECT_EQ(serial_state[i].name, lazy_state[i].name);
        EXPECT_TRUE(same_bits(serial_state[i].tensor, lazy_state[i].tensor)) << serial_state[i].name;
    }
}

TEST_P(AnyOptimizer, AnUpdateIsPendingUntilItIsApplied) {
    std::vector<ParameterGroup> groups = make_groups();
    const std::vector<ParameterGroup> before = make_groups();
    LayeredOptimizer optimizer(groups, rule(of_kind(0)), UpdateMode::lazy);
    set_gradients(groups, 0);
    optimizer.finish_step(1e-2, 1.0);
    expect_same_bits(groups, before);
    EXPECT_THROW((void)optimizer.gradient_norm(), c10::Error);
    EXPECT_TRUE(optimizer.apply(1));
    EXPECT_TRUE(same_bits(groups[0].parameters[0].master, before[0].parameters[0].master));
    EXPECT_FALSE(same_bits(groups[1].parameters[0].master, before[1].parameters[0].master));
    EXPECT_FALSE(groups[1].parameters[0].master.grad().defined());
    EXPECT_TRUE(groups[0].parameters[0].master.grad().defined());
}

TEST_P(AnyOptimizer, LearningRateZeroKeepsTheVeryBits) {
    std::vector<ParameterGroup> groups = make_groups();
    {
        const torch::NoGradGuard no_grad;
        groups[0].parameters[0].master.select(0, 0).fill_(-0.0);
    }
    const Tensor before = groups[0].parameters[0].master.detach().clone();
    LayeredOptimizer optimizer(groups, rule(of_kind(0.1)), UpdateMode::serial);
    for (int step = 0; step < 3; ++step) {
        set_gradients(groups, step);
        optimizer.finish_step(0.0, 0.5);
    }
    EXPECT_TRUE(same_bits(groups[0].parameters[0].master, before));
    EXPECT_GT(optimizer.state()[0].tensor.to(torch::kFloat).norm().item<double>(), 0);  // the moments moved
}

TEST(LayeredOptimizer, ZeroRateStepsMoveTheMomentsAsOtherStepsDo) {
    std::vector<ParameterGroup> still = make_groups();
    std::vector<ParameterGroup> moving = make_groups();
    LayeredOptimizer a(still, rule({}), UpdateMode::serial);
    LayeredOptimizer b(moving, rule({}), UpdateMode::serial);
    for (int step = 0; step < 5; ++step) {
        set_gradients(still, step);
        set_gradients(moving, step);
        a.finish_step(0.0, 0.25);
        b.finish_step(1e-3, 0.25);
    }
    const auto at_rest = a.state();
    const auto in_motion = b.state();
    for (std::size_t i = 0; i < at_rest.size(); ++i) {
        EXPECT_TRUE(torch::allclose(at_rest[i].tensor, in_motion[i].tensor, 1e-5, 1e-9)) << at_rest[i].name;
    }
}

TEST_P(AnyOptimizer, AParameterWithoutAGradientIsLeftAlone) {
    std::vector<ParameterGroup> groups = make_groups();
    const std::vector<ParameterGroup> before = make_groups();
    LayeredOptimizer optimizer(groups, rule(of_kind(0.1)), UpdateMode::serial);
    set_gradients(groups, 0);
    groups[1].parameters[0].master.mutable_grad() = Tensor();
    optimizer.finish_step(0.1, 1.0);
    EXPECT_TRUE(same_bits(groups[1].parameters[0].master, before[1].parameters[0].master));
    EXPECT_FALSE(same_bits(groups[1].parameters[1].master, before[1].parameters[1].master));
}

// What check_memory() of a student asks before anything is allocated.
TEST(LayeredOptimizer, SaysWhatTrainingTakes) {
    std::vector<ParameterGroup> groups(2);
    groups[0].name = "embedding";
    groups[1].name = "layers.0";
    declare_parameter(groups[0], "table", {1000, 64}, InitialValues::normal);
    declare_parameter(groups[1], "matrix", {512, 512}, InitialValues::normal);
    declare_parameter(groups[1], "norm", {512}, InitialValues::ones);
    declare_parameter(groups[1], "frozen", {100, 10}, InitialValues::normal).trainable = false;
    constexpr std::uint64_t kTable = 64000;
    constexpr std::uint64_t kMatrix = 512 * 512;
    constexpr std::uint64_t kBase = (kTable + kMatrix + 512) * 8 + 1000 * 4;  // weights and gradients
    const auto bytes = [&](const TrainingSpec& training) {
        return training_bytes(groups, training, torch::kFloat, torch::kFloat);
    };
    const auto with = [](OptimizerKind optimizer, double momentum) {
        TrainingSpec training;
        training.optimizer = optimizer;
        training.sgd_momentum = momentum;
        return training;
    };
    EXPECT_EQ(bytes({}), kBase + (kTable + kMatrix + 512) * 8);
    EXPECT_EQ(bytes(with(OptimizerKind::sgd, 0)), kBase);
    EXPECT_EQ(bytes(with(OptimizerKind::sgd, 0.9)), kBase + (kTable + kMatrix + 512) * 4);
    EXPECT_EQ(bytes(with(OptimizerKind::adamw_8bit, 0)), kBase + (kTable + 512) * 8 + kMatrix * 2 + kMatrix / 256 * 8);
    TrainingSpec grouped = with(OptimizerKind::sgd, 0);
    grouped.micro_batches = 8;
    grouped.gradient_groups = 4;  // three sums of each gradient
    EXPECT_EQ(bytes(grouped), kBase + 2 * (kTable + kMatrix + 512) * 4);

    // Estimates, which have no libtorch, say the same of every optimizer.
    for (const auto& row : kEnumNames<OptimizerKind>) {
        for (const double momentum : {0.0, 0.9}) {
            const TrainingSpec training = with(row.value, momentum);
            EXPECT_EQ(kBase + optimizer_state_bytes(training, kTable + kMatrix + 512, kTable + 512), bytes(training))
                << row.text << " " << momentum;
        }
    }
}

struct Trained {
    std::vector<ParameterGroup> groups;
    std::vector<double> norms;
    std::size_t started = 0;  ///< threads that the updates brought into being
};

/// Ids and not a count: threads of an earlier test may end meanwhile.
std::set<std::string> thread_ids() {
    std::set<std::string> ids;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
        ids.insert(entry.path().filename().string());
    }
    return ids;
}

TEST(LayeredOptimizer, GivesTheSameBitsOnAnyNumberOfThreads) {
    // Large enough for libtorch to split, and of a size that no number of threads divides.
    const auto run = [](int threads) {
        at::set_num_threads(1);
        auto generator = torch::make_generator<torch::CPUGeneratorImpl>(9);
        std::vector<ParameterGroup> groups(1);
        for (const char* name : {"first", "second"}) {
            Parameter& parameter = groups[0].parameters.emplace_back();
            parameter.name = name;
            parameter.master = torch::randn({1021, 577}, generator, torch::kFloat).requires_grad_(true);
            parameter.decays = true;
        }
        LayeredOptimizer optimizer(groups, rule({.beta2 = 0.95, .weight_decay = 0.1}), UpdateMode::serial);
        Trained trained;
        for (int step = 0; step < 3; ++step) {
            at::set_num_threads(1);
            set_gradients(groups, step);
            trained.norms.push_back(optimizer.gradient_norm());
            at::set_num_threads(threads);
            const auto before = thread_ids();
            optimizer.finish_step(1e-2, 0.5);
            const auto after = thread_ids();
            trained.started += static_cast<std::size_t>(
                std::ranges::count_if(after, [&](const std::string& id) { return !before.contains(id); }));
        }
        trained.groups = groups;
        return trained;
    };
    // OpenMP has a team for each thread that asks for one. A new thread has none yet, so the update that is split, and
    // nothing else, starts it.
    const int usual = at::get_num_threads();
    const auto alone = std::async(std::launch::async, run, 1).get();
    const auto together = std::async(std::launch::async, run, 3).get();
    at::set_num_threads(usual);
    EXPECT_EQ(alone.started, 0U);
    EXPECT_EQ(together.started, 2U) << "libtorch did not split the update, so this test shows nothing";
    expect_same_bits(alone.groups, together.groups);
    EXPECT_EQ(alone.norms, together.norms);
}

}  // namespace
}  // namespace distilld::models
