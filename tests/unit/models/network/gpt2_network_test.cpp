#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <string>
#include <vector>

#include "models/network/dropout.hpp"
#include "models/network/ternary_modules.hpp"
#include "tests/unit/models/network/small_network.hpp"

/// What GPT-2 has and no other family: learned positions, and dropout in the network itself. That it computes what
/// transformers does, tests/e2e/test_network_parity.py shows.
namespace distilld::models {
namespace {

using test::ids;
using test::make_network;
using test::same_bits;

std::unique_ptr<CausalLm> gpt2(const std::string& members = R"("embd_pdrop": 0, "attn_pdrop": 0, "resid_pdrop": 0)",
                               std::uint64_t seed = 7) {
    const std::string json = R"({"model_type": "gpt2", "vocab_size": 61, "n_embd": 32, "n_layer": 3, "n_head": 4,
        "n_positions": 24, "initializer_range": 0.2, )" +
                             members + "}";
    return make_network(parse_model_config(json, {}).value(), ComputeDtype::fp32, seed);
}

torch::Tensor hidden(CausalLm& network, const torch::Tensor& input, const DocumentGroups& documents = {}) {
    const torch::NoGradGuard no_grad;
    return network.forward(input, {}, documents);
}

torch::Tensor trained_on(CausalLm& network, std::uint64_t micro_batch, const torch::Tensor& input = ids(3, 20)) {
    const MicroBatchScope scope(micro_batch);
    return hidden(network, input);
}

TEST(Gpt2Network, PositionsCountFromTheBeginningOfEachDocument) {
    const auto network = gpt2();
    // Two documents of 7 positions and one of 5, beside each other and with a row each.
    const torch::Tensor all = ids(1, 19);
    const DocumentGroups documents{{2, 7}, {1, 5}};
    const torch::Tensor packed = hidden(*network, all, documents);
    std::int64_t begin = 0;
    for (const std::int64_t length : {7, 7, 5}) {
        const torch::Tensor alone = hidden(*network, all.narrow(1, begin, length));
        EXPECT_TRUE(torch::allclose(packed.narrow(1, begin, length), alone, 1e-5, 1e-6)) << begin;
        begin += length;
    }
    EXPECT_FALSE(torch::allclose(packed, hidden(*network, all), 1e-2, 1e-2)) << "the comparison can tell";
}

TEST(Gpt2Network, EachKindOfDropoutIsOfTrainingAlone) {
    const torch::Tensor calm = hidden(*gpt2(), ids(3, 20));
    for (const std::string rate : {"embd_pdrop", "attn_pdrop", "resid_pdrop"}) {
        std::string members;
        for (const std::string name : {"embd_pdrop", "attn_pdrop", "resid_pdrop"}) {
            members += (members.empty() ? "\"" : ", \"") + name + (name == rate ? "\": 0.3" : "\": 0");
        }
        const auto network = gpt2(members);
        EXPECT_TRUE(same_bits(hidden(*network, ids(3, 20)), calm)) << rate;
        EXPECT_FALSE(torch::allclose(trained_on(*network, 4), calm, 1e-2, 1e-2)) << rate;
        EXPECT_TRUE(same_bits(trained_on(*network, 4), trained_on(*network, 4))) << rate;
        EXPECT_FALSE(torch::allclose(trained_on(*network, 4), trained_on(*network, 5), 1e-2, 1e-2)) << rate;
        const torch::Tensor before = trained_on(*network, 4);
        network->set_dropout_seed(99);
        EXPECT_FALSE(torch::allclose(trained_on(*network, 4), before, 1e-2, 1e-2)) << rate;
        EXPECT_TRUE(same_bits(hidden(*network, ids(3, 20)), calm)) << rate << ": the scope has ended";
    }
}

TEST(Gpt2Network, DocumentsOfOneLengthDropTheirOwn) {
    const auto network = gpt2(R"("embd_pdrop": 0, "attn_pdrop": 0.5, "resid_pdrop": 0)");
    const torch::Tensor twice = ids(1, 6).repeat({1, 2});
    const MicroBatchScope scope(1);
    const torch::Tensor one_group = hidden(*network, twice, {{2, 6}});
    EXPECT_FALSE(torch::allclose(one_group.narrow(1, 0, 6), one_group.narrow(1, 6, 6), 1e-2, 1e-2));
    const torch::Tensor two_groups = hidden(*network, twice, {{1, 6}, {1, 6}});
    EXPECT_FALSE(torch::allclose(two_groups.narrow(1, 0, 6), two_groups.narrow(1, 6, 6), 1e-2, 1e-2));
}

// A rate that drops nothing takes the way of one that does.
TEST(Gpt2Network, AttentionInStepsIsThatOfTheFusedKernel) {
    for (const std::string members :
         {"", R"(, "scale_attn_weights": false)", R"(, "scale_attn_by_inverse_layer_idx": true)",
          R"(, "reorder_and_upcast_attn": true)"}) {
        const auto fused = gpt2(R"("embd_pdrop": 0, "attn_pdrop": 0, "resid_pdrop": 0)" + members);
        const auto steps = gpt2(R"("embd_pdrop": 0, "attn_pdrop": 1e-15, "resid_pdrop": 0)" + members);
        const torch::Tensor wanted = hidden(*fused, ids(3, 20));
        const torch::Tensor got = trained_on(*steps, 2);
        EXPECT_TRUE(torch::allclose(got, wanted, 1e-4, 1e-5)) << members;
        EXPECT_FALSE(same_bits(got, wanted)) << "both went the same way";
    }
}

TEST(Gpt2Network, RecomputedBlocksDropTheSame) {
    std::vector<torch::Tensor> first;
    for (const bool recomputed : {false, true}) {
        const auto network = gpt2(R"("embd_pdrop": 0.1, "attn_pdrop": 0.2, "resid_pdrop": 0.3)");
        network->recompute_blocks(recomputed);
        const MicroBatchScope scope(3);
        network->forward(ids(3, 20)).square().mean().backward();
        std::size_t index = 0;
        for (const Parameter& parameter : all_parameters(network->groups())) {
            ASSERT_TRUE(parameter.master.grad().defined()) << parameter.name;
            if (recomputed) {
                EXPECT_TRUE(same_bits(parameter.master.grad(), first.at(index++))) << parameter.name;
            } else {
                first.push_back(parameter.master.grad());
            }
        }
    }
}

TEST(Gpt2Network, TernaryWeightsAreRefused) {
    const auto network = gpt2();
    const Result<void> made = make_ternary(*network, {});
    ASSERT_FALSE(made);
    EXPECT_THAT(made.error().message, testing::HasSubstr("/student/quantization: is \"ternary\", but transformer.h.0."
                                                         "attn.c_attn has its weight as [inputs, outputs] (Conv1D)"));
}

}  // namespace
}  // namespace distilld::models
