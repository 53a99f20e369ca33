#include "models/training/train_step.hpp"

#include <gtest/gtest.h>
#include <torch/utils.h>

#include <memory>
#include <tuple>

#include "models/losses/distill_loss.hpp"
#include "tests/unit/models/training/small_student.hpp"

namespace distilld::models {
namespace {

using test::config_json;
using test::kVocabulary;
using test::micro_batch;
using test::Teacher;
using torch::Tensor;

std::unique_ptr<CausalLm> network_of(bool tied, ComputeDtype dtype) {
    return make_causal_lm(parse_model_config(config_json(tied), {}).value(), dtype, torch::kCPU, 5);
}

/// Few enough parameters to move each by itself. With biases, so that these are checked too.
std::unique_ptr<CausalLm> tiny_network(bool tied) {
    ModelConfig config = parse_model_config(config_json(tied), {}).value();
    config.decoder.num_hidden_layers = 1;
    config.decoder.hidden_size = 6;
    config.decoder.intermediate_size = 5;
    config.decoder.num_attention_heads = 2;
    config.decoder.num_key_value_heads = 1;
    config.decoder.head_dim = 4;
    config.decoder.query_key_value_bias = true;
    config.decoder.attention_output_bias = true;
    config.decoder.mlp_bias = true;
    config.decoder.initializer_range = 0.4;
    auto network = make_causal_lm(config, ComputeDtype::fp64, torch::kCPU, 5);
    const torch::NoGradGuard no_grad;
    auto generator = torch::make_generator<torch::CPUGeneratorImpl>(8);
    for (const Parameter& parameter : all_parameters(network->groups())) {
        if (parameter.initial != InitialValues::normal) {
            parameter.master.add_(0.2 * torch::randn(parameter.master.sizes(), generator, torch::kDouble));
        }
    }
    return network;
}

class GradientAccumulation : public testing::TestWithParam<std::tuple<bool, Teacher>> {};

TEST_P(GradientAccumulation, EightMicroBatchesEqualOneBatchOfEight) {
    const auto [tied, kind] = GetParam();
    const auto whole = network_of(tied, ComputeDtype::fp32);
    const auto parts = network_of(tied, ComputeDtype::fp32);
    const StagingOptions staging{kVocabulary, kind != Teacher::none, 2.0, torch::kCPU};
    DistillLossOptions loss;
    loss.kd_ratio = 0.5;
    loss.temperature = 2.0;

    const MicroBatch all = micro_batch(0, 16, kind);
    const DistillLossSums whole_sums =
        sums_of(accumulate_gradients(*whole, *stage_micro_batch(all, staging), loss, {}));
    double parts_loss = 0;
    for (std::uint64_t part = 0; part < 8; ++part) {
        const auto staged = stage_micro_batch(micro_batch(part * 2, 2, kind, all.step_target_tokens), staging);
        parts_loss += accumulate_gradients(*parts, *staged, loss, {}).loss.item<double>();
    }
    EXPECT_NEAR(parts_loss, whole_sums.loss, 1e-6 * whole_sums.loss);
    const auto expected = all_parameters(whole->groups());
    const auto actual = all_parameters(parts->groups());
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const Tensor wanted = expected[i].master.grad().to(torch::kDouble);
        const Tensor got = actual[i].master.grad().to(torch::kDouble);
        ASSERT_GT(wanted.norm().item<double>(), 0) << expected[i].name;
        EXPECT_LE((got - wanted).norm().item<double>(), 1e-6 * wanted.norm().item<double>()) << expected[i].name;
    }
}

INSTANTIATE_TEST_SUITE_P(TrainStep, GradientAccumulation,
                         testing::Combine(testing::Bool(),
                                          testing::Values(Teacher::none, Teacher::topk, Teacher::logits)));

TEST(TrainStep, GradientsAgreeWithAutogradThroughTheWholeNetwork) {
    for (const bool tied : {true, false}) {
        const auto ours = network_of(tied, ComputeDtype::fp32);
        const auto theirs = network_of(tied, ComputeDtype::fp32);
        const auto staged = stage_micro_batch(micro_batch(0, 4, Teacher::none), {kVocabulary, false, 1.0, torch::kCPU});
        accumulate_gradients(*ours, *staged, {}, {});

        const Tensor hidden = theirs->forward(staged->input_ids);
        const Tensor logits = theirs->project(hidden.reshape({-1, hidden.size(-1)})).index_select(0, staged->rows);
        torch::cross_entropy_loss(logits, staged->targets.labels).backward();
        const auto expected = all_parameters(theirs->groups());
        const auto actual = all_parameters(ours->groups());
        for (std::size_t i = 0; i < expected.size(); ++i) {
            const Tensor wanted = expected[i].master.grad();
            EXPECT_LT((actual[i].master.grad() - wanted).norm().item<double>(), 2e-6 * wanted.norm().item<double>())
                << expected[i].name;
        }
    }
}

/// Every element of every parameter: the loss in fp64 a little above and below it, against the gradient.
class NumericGradient : public testing::TestWithParam<std::tuple<bool, Teacher>> {};

TEST_P(NumericGradient, AgreesInFp64ForEveryElement) {
    const auto [tied, kind] = GetParam();
    const auto network = tiny_network(tied);
    MicroBatch batch = micro_batch(0, 2, kind);
    const auto staged = stage_micro_batch(batch, {kVocabulary, kind != Teacher::none, 2.0, torch::kCPU});
    DistillLossOptions options;
    options.kd_ratio = 0.5;
    options.temperature = 2.0;
    accumulate_gradients(*network, *staged, options, {});
    const auto loss = [&] {
        const torch::NoGradGuard no_grad;
        const Tensor hidden = network->forward(staged->input_ids);
        return distill_loss(hidden.reshape({-1, hidden.size(-1)}).index_select(0, staged->rows), network->head_weight(),
                            staged->targets, options, nullptr)
                   .loss /
               static_cast<double>(batch.step_target_tokens);
    };
    constexpr double kStep = 1e-5;  // error of the central difference: step² × third derivative
    for (const Parameter& parameter : all_parameters(network->groups())) {
        ASSERT_EQ(parameter.master.grad().scalar_type(), torch::kDouble) << parameter.name;
        const Tensor flat = parameter.master.detach().view({-1});
        Tensor slopes = torch::empty_like(flat);
        for (std::int64_t i = 0; i < flat.numel(); ++i) {
            const double value = flat[i].item<double>();
            flat[i] = value + kStep;
            const double above = loss();
            flat[i] = value - kStep;
            const double below = loss();
            flat[i] = value;
            slopes[i] = (above - below) / (2 * kStep);
        }
        const Tensor gradient = parameter.master.grad().view({-1});
        ASSERT_GT(gradient.norm().item<double>(), 0) << parameter.name;
        EXPECT_LT((gradient - slopes).norm().item<double>(), 1e-6 * gradient.norm().item<double>()) << parameter.name;
    }
}

INSTANTIATE_TEST_SUITE_P(TrainStep, NumericGradient,
                         testing::Combine(testing::Bool(),
                                          testing::Values(Teacher::none, Teacher::topk, Teacher::logits)));

}  // namespace
}  // namespace distilld::models
