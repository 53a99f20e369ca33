#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <tuple>
#include <vector>

#include "bench/live_bytes.hpp"
#include "models/network/checkpointed.hpp"
#include "models/network/embedding.hpp"
#include "tests/unit/models/network/small_network.hpp"

namespace distilld::models {
namespace {

using torch::Tensor;

/// Two micro-batches of a made-up loss; the second adds to the gradients of the first.
void backward_twice(CausalLm& network) {
    for (const std::int64_t rows : {3, 2}) {
        const Tensor hidden = network.forward(test::ids(rows, 24));
        const Tensor logits = network.project(hidden);
        torch::log_softmax(logits.to(torch::kDouble), -1).select(-1, 5).sum().backward();
    }
}

class GradientCheckpointing : public testing::TestWithParam<std::tuple<bool, ComputeDtype>> {};

TEST_P(GradientCheckpointing, GivesTheSameBits) {
    const auto [tied, dtype] = GetParam();
    const auto plain = test::make_network(test::small_config(tied), dtype);
    const auto checkpointing = test::make_network(test::small_config(tied), dtype);
    checkpointing->recompute_blocks(true);
    EXPECT_TRUE(test::same_bits(plain->forward(test::ids(2, 24)), checkpointing->forward(test::ids(2, 24))));
    backward_twice(*plain);
    backward_twice(*checkpointing);
    const std::vector<Parameter> wanted = all_parameters(plain->groups());
    const std::vector<Parameter> got = all_parameters(checkpointing->groups());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        ASSERT_TRUE(got[i].master.grad().defined()) << got[i].name;
        EXPECT_TRUE(test::same_bits(wanted[i].master.grad(), got[i].master.grad())) << got[i].name;
    }
}

INSTANTIATE_TEST_SUITE_P(Network, GradientCheckpointing,
                         testing::Combine(testing::Bool(), testing::Values(ComputeDtype::fp32, ComputeDtype::bf16)));

TEST(Checkpointed, HoldsOneBlockAtATime) {
    ModelConfig config = test::small_config();
    config.decoder.num_hidden_layers = 12;
    const auto peak = [&](bool checkpointing) {
        const auto network = test::make_network(config);
        network->recompute_blocks(checkpointing);
        const Tensor ids = test::ids(8, 64);
        return bench::peak_bytes_of([&] { network->forward(ids).sum().backward(); });
    };
    const std::int64_t whole = peak(false);
    const std::int64_t blocks = peak(true);
    std::cout << "12 layers: " << whole / 1024 << " KiB at once, checkpointed " << blocks / 1024 << " KiB" << std::endl;
    EXPECT_LT(blocks * 3, whole);
}

TEST(Checkpointed, TeachesWhatIsInTheBlockWhereTheInputLearnsNothing) {
    // As adapters on a frozen base: nothing before the first block needs a gradient.
    const Tensor weight = torch::ones({4}).requires_grad_(true);
    const Tensor input = torch::arange(4, torch::kFloat);
    const Tensor output = checkpointed([weight](const Tensor& x) { return x * weight; }, input);
    output.sum().backward();
    ASSERT_TRUE(weight.grad().defined());
    EXPECT_TRUE(torch::equal(weight.grad(), input));
}

TEST(LookUp, AddsTheGradientsOfEmbeddingByIndex) {
    auto generator = torch::make_generator<torch::CPUGeneratorImpl>(7);
    ParameterGroup group;
    Parameter& table = declare_parameter(group, "table", {5000, 48}, InitialValues::normal);
    table.master = torch::randn({5000, 48}, generator, torch::kFloat).requires_grad_(true);
    const Tensor dense = table.master.detach().clone().requires_grad_(true);
    for (int batch = 0; batch < 3; ++batch) {
        // Few ids, so that most come more than once.
        const Tensor ids = torch::randint(0, 40, {6, 50}, generator, torch::kLong);
        const Tensor slopes = torch::randn({6, 50, 48}, generator, torch::kFloat);
        const Tensor rows = look_up(table, ids);
        EXPECT_TRUE(torch::equal(rows, at::embedding(dense, ids)));
        rows.backward(slopes);
        at::embedding(dense, ids).backward(slopes);
        EXPECT_TRUE(torch::equal(table.master.grad(), dense.grad())) << batch;
    }
    const Tensor ids = torch::arange(64);
    const std::int64_t by_index = bench::peak_bytes_of([&] { look_up(table, ids).sum().backward(); });
    const std::int64_t whole = bench::peak_bytes_of([&] { at::embedding(dense, ids).sum().backward(); });
    std::cout << "a micro-batch takes " << by_index / 1024 << " KiB by index, " << whole / 1024 << " KiB as a table"
              << std::endl;
    EXPECT_LT(by_index * 10, whole);
}

TEST(LookUp, IsALookUpWhereNothingLearns) {
    ParameterGroup group;
    Parameter& table = declare_parameter(group, "table", {9, 4}, InitialValues::normal);
    table.master = torch::randn({9, 4});
    EXPECT_FALSE(look_up(table, torch::arange(9)).requires_grad());
}

}  // namespace
}  // namespace distilld::models
