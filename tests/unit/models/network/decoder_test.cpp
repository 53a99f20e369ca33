#include "models/network/decoder.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "tests/unit/models/network/small_network.hpp"

namespace distilld::models {
namespace {

using test::ids;
using test::make_network;
using test::same_bits;
using test::small_config;
using testing::ElementsAre;

/// The textbook formula in double precision, one position at a time: nothing shared with the network's code.
torch::Tensor reference_logits(const CausalLm& network, const torch::Tensor& input_ids) {
    const torch::NoGradGuard no_grad;
    const DecoderConfig& config = network.config().decoder;
    std::map<std::string, torch::Tensor> weights;
    for (const Parameter& parameter : all_parameters(network.groups())) {
        weights[parameter.name] = parameter.master.to(torch::kDouble);
    }
    const auto norm = [&](const torch::Tensor& x, const std::string& name) {
        return x / (x * x).mean(-1, true).add(config.norm_epsilon).sqrt() * weights.at(name);
    };
    const auto rotate = [&](const torch::Tensor& x) {  // [T, D]
        auto out = x.clone();
        const auto half = config.head_dim / 2;
        for (std::int64_t t = 0; t < x.size(0); ++t) {
            for (std::int64_t i = 0; i < half; ++i) {
                const double angle =
                    static_cast<double>(t) /
                    std::pow(config.rope_theta, 2.0 * static_cast<double>(i) / static_cast<double>(config.head_dim));
                const double a = x[t][i].item<double>();
                const double b = x[t][i + half].item<double>();
                out[t][i] = a * std::cos(angle) - b * std::sin(angle);
                out[t][i + half] = b * std::cos(angle) + a * std::sin(angle);
            }
        }
        return out;
    };
    std::vector<torch::Tensor> rows;
    for (std::int64_t b = 0; b < input_ids.size(0); ++b) {
        auto x = weights.at("model.embed_tokens.weight").index_select(0, input_ids[b]);
        for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
            const auto prefix = "model.layers." + std::to_string(layer) + ".";
            const auto y = norm(x, prefix + "input_layernorm.weight");
            const auto q = y.mm(weights.at(prefix + "self_attn.q_proj.weight").t());
            const auto k = y.mm(weights.at(prefix + "self_attn.k_proj.weight").t());
            const auto v = y.mm(weights.at(prefix + "self_attn.v_proj.weight").t());
            std::vector<torch::Tensor> heads;
            for (std::int64_t head = 0; head < config.num_attention_heads; ++head) {
                const auto key_head = head / (config.num_attention_heads / config.num_key_value_heads);
                const auto d = config.head_dim;
                const auto qh = rotate(q.narrow(1, head * d, d));
                const auto kh = rotate(k.narrow(1, key_head * d, d));
                auto scores = qh.mm(kh.t()) / std::sqrt(static_cast<double>(d));
                const auto future = torch::ones_like(scores).triu(1).to(torch::kBool);
                scores = scores.masked_fill(future, -std::numeric_limits<double>::infinity());
                heads.push_back(scores.softmax(-1).mm(v.narrow(1, key_head * d, d)));
            }
            x = x + torch::cat(heads, 1).mm(weights.at(prefix + "self_attn.o_proj.weight").t());
            const auto z = norm(x, prefix + "post_attention_layernorm.weight");
            const auto gate = z.mm(weights.at(prefix + "mlp.gate_proj.weight").t());
            const auto up = z.mm(weights.at(prefix + "mlp.up_proj.weight").t());
            x = x + (gate * gate.sigmoid() * up).mm(weights.at(prefix + "mlp.down_proj.weight").t());
        }
        const auto* head = config.tie_word_embeddings ? "model.embed_tokens.weight" : "lm_head.weight";
        rows.push_back(norm(x, "model.norm.weight").mm(weights.at(head).t()));
    }
    return torch::stack(rows);
}

class NetworkShapes : public testing::TestWithParam<std::tuple<bool, std::int64_t>> {};

TEST_P(NetworkShapes, ComputesTheTextbookFormula) {
    const auto [tied, key_heads] = GetParam();
    auto network = make_network(small_config(tied, key_heads));
    const torch::NoGradGuard no_grad;
    const auto input = ids(2, 9);
    const auto hidden = network->forward(input);
    ASSERT_EQ(hidden.sizes(), (std::vector<std::int64_t>{2, 9, 32}));
    const auto logits = network->project(hidden.reshape({18, 32})).reshape({2, 9, 61});
    const auto expected = reference_logits(*network, input);
    EXPECT_GT(expected.std().item<double>(), 0.1);
    EXPECT_LT((logits.to(torch::kDouble) - expected).abs().max().item<double>(), 2e-5);
}

TEST_P(NetworkShapes, CountsEachParameterOnce) {
    const auto [tied, key_heads] = GetParam();
    const auto network = make_network(small_config(tied, key_heads));
    std::set<std::string> names;
    std::set<void*> memory;
    for (const ParameterGroup& group : network->groups()) {
        for (const Parameter& parameter : group.parameters) {
            EXPECT_TRUE(names.insert(parameter.name).second) << parameter.name;
            EXPECT_TRUE(memory.insert(parameter.master.data_ptr()).second) << parameter.name;
            EXPECT_TRUE(parameter.master.is_leaf() && parameter.master.requires_grad()) << parameter.name;
            EXPECT_TRUE(parameter.trainable) << parameter.name;
            EXPECT_EQ(parameter.decays, parameter.master.dim() == 2) << parameter.name;
            EXPECT_EQ(parameter.master.scalar_type(), torch::kFloat);
        }
    }
    const auto layer = 2 * 32 + 2 * 32 * 32 + 2 * 32 * 8 * key_heads + 3 * 32 * 48;
    EXPECT_EQ(parameter_count(network->groups()),
              static_cast<std::uint64_t>((tied ? 1 : 2) * 61 * 32 + 3 * layer + 32));
    EXPECT_EQ(names.contains("lm_head.weight"), !tied);
    EXPECT_EQ(network->head().name, tied ? "model.embed_tokens.weight" : "lm_head.weight");
    ASSERT_EQ(network->groups().size(), 5U);
    EXPECT_EQ(network->groups()[0].name, "embedding");
    EXPECT_EQ(network->groups()[2].name, "layers.1");
    EXPECT_EQ(network->groups()[4].name, "head");
    EXPECT_EQ(network->groups()[1].parameters[1].name, "model.layers.0.self_attn.q_proj.weight");
}

TEST_P(NetworkShapes, GivesEveryParameterAGradient) {
    const auto [tied, key_heads] = GetParam();
    for (const auto dtype : {ComputeDtype::fp32, ComputeDtype::bf16, ComputeDtype::fp64}) {
        const auto network = make_network(small_config(tied, key_heads), dtype);
        network->project(network->forward(ids(2, 8))).to(torch::kFloat).log_softmax(-1).select(-1, 5).sum().backward();
        for (const Parameter& parameter : all_parameters(network->groups())) {
            ASSERT_TRUE(parameter.master.grad().defined()) << parameter.name;
            EXPECT_EQ(parameter.master.grad().scalar_type(), master_type(dtype)) << parameter.name;
            EXPECT_GT(parameter.master.grad().abs().sum().item<double>(), 0.0) << parameter.name;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, NetworkShapes, testing::Combine(testing::Bool(), testing::Values<std::int64_t>(1, 2, 4)));

TEST(Decoder, LaterTokensDoNotChangeEarlierRows) {
    auto network = make_network(small_config());
    const torch::NoGradGuard no_grad;
    const auto input = ids(2, 12);
    const auto before = network->forward(input);
    for (const std::int64_t t : {1, 5, 11}) {
        auto changed = input.clone();
        changed.select(1, t).copy_((changed.select(1, t) + 1).remainder(61));
        const auto after = network->forward(changed);
        EXPECT_TRUE(same_bits(before.narrow(1, 0, t), after.narrow(1, 0, t))) << t;
        EXPECT_FALSE(torch::equal(before.select(1, t), after.select(1, t))) << t;
    }
}

TEST(Decoder, AnnouncesEachGroupOnceInOrder) {
    auto network = make_network(small_config());
    std::vector<std::size_t> seen;
    const torch::NoGradGuard no_grad;
    network->forward(ids(1, 4), [&](std::size_t group) { seen.push_back(group); });
    EXPECT_THAT(seen, ElementsAre(0, 1, 2, 3, 4));
}

TEST(Decoder, UsesAGroupOnlyAfterItsAnnouncement) {
    // Parameters of group g are wrong until before(g): the result must be that of the right ones.
    const torch::NoGradGuard no_grad;
    auto network = make_network(small_config());
    const auto expected = network->forward(ids(1, 5));
    std::vector<std::vector<torch::Tensor>> right;
    for (ParameterGroup& group : network->groups()) {
        right.emplace_back();
        for (Parameter& parameter : group.parameters) {
            right.back().push_back(parameter.master.clone());
            parameter.master.fill_(std::numeric_limits<float>::quiet_NaN());
        }
    }
    const auto actual = network->forward(ids(1, 5), [&](std::size_t g) {
        for (std::size_t i = 0; i < right[g].size(); ++i) {
            network->groups()[g].parameters[i].master.copy_(right[g][i]);
        }
    });
    EXPECT_TRUE(same_bits(actual, expected));
}

TEST(Decoder, RandomWeightsDependOnTheSeedOnly) {
    const auto weights = [](std::uint64_t seed, ComputeDtype dtype) {
        return all_parameters(make_network(small_config(), dtype, seed)->groups());
    };
    torch::manual_seed(1);
    const auto first = weights(42, ComputeDtype::fp32);
    torch::manual_seed(2);
    torch::rand({100});
    const auto second = weights(42, ComputeDtype::fp32);
    const auto wide = weights(42, ComputeDtype::fp64);
    const auto other = weights(43, ComputeDtype::fp32);
    for (std::size_t i = 0; i < first.size(); ++i) {
        EXPECT_TRUE(same_bits(first[i].master, second[i].master)) << first[i].name;
        EXPECT_TRUE(same_bits(first[i].master.to(torch::kDouble), wide[i].master)) << first[i].name;
        if (!first[i].name.ends_with("norm.weight")) {
            EXPECT_FALSE(torch::equal(first[i].master, other[i].master)) << first[i].name;
        }
    }
    EXPECT_NEAR(first[0].master.std().item<double>(), 0.2, 0.02);
    EXPECT_NEAR(first[0].master.mean().item<double>(), 0.0, 0.02);
}

TEST(Decoder, Bf16IsCloseToFp32) {
    const auto exact = make_network(small_config());
    const auto rounded = make_network(small_config(), ComputeDtype::bf16);
    const torch::NoGradGuard no_grad;
    const auto expected = exact->project(exact->forward(ids(2, 16)));
    const auto actual = rounded->project(rounded->forward(ids(2, 16)));
    EXPECT_EQ(actual.scalar_type(), torch::kBFloat16);
    const auto error = (actual.to(torch::kFloat) - expected).norm() / expected.norm();
    EXPECT_LT(error.item<double>(), 0.03);
    const std::uint64_t count = parameter_count(rounded->groups());
    for (ParameterGroup& group : rounded->groups()) {
        for (Parameter& parameter : group.parameters) {
            keep_converted(parameter, parameter.master.to(torch::kBFloat16));
        }
    }
    EXPECT_TRUE(same_bits(rounded->project(rounded->forward(ids(2, 16))), actual));
    EXPECT_FALSE(rounded->groups()[0].parameters[0].master.defined());
    EXPECT_EQ(rounded->groups()[0].parameters[0].compute.scalar_type(), torch::kBFloat16);
    EXPECT_EQ(parameter_count(rounded->groups()), count);
}

TEST(Decoder, Fp64IsTheTextbookToItsLastDigits) {
    const auto network = make_network(small_config(), ComputeDtype::fp64);
    const torch::NoGradGuard no_grad;
    const auto logits = network->project(network->forward(ids(2, 9)));
    ASSERT_EQ(logits.scalar_type(), torch::kDouble);
    // But for the rotary angles, which are fp32 everywhere, this would be 1e-14.
    EXPECT_LT((logits - reference_logits(*network, ids(2, 9))).abs().max().item<double>(), 5e-6);
}

TEST(Decoder, TrainsAfterAnInferenceModePass) {
    auto network = make_network(small_config());
    {
        const c10::InferenceMode inference;
        network->forward(ids(1, 8));
    }
    network->forward(ids(1, 8)).sum().backward();
    EXPECT_TRUE(network->groups()[0].parameters[0].master.grad().defined());
}

TEST(Decoder, BiasesTakePart) {
    auto config = small_config();
    config.decoder.query_key_value_bias = true;
    config.decoder.attention_output_bias = true;
    config.decoder.mlp_bias = true;
    auto network = make_network(config);
    const torch::NoGradGuard no_grad;
    auto last = network->forward(ids(1, 6));
    std::size_t biases = 0;
    for (Parameter& parameter : network->groups()[1].parameters) {
        if (parameter.name.ends_with(".bias")) {
            ++biases;
            parameter.master.normal_();
            auto next = network->forward(ids(1, 6));
            // A key bias shifts all scores of a query alike, but for the rotation.
            EXPECT_FALSE(torch::equal(last, next)) << parameter.name;
            last = next;
        }
    }
    EXPECT_EQ(biases, 7U);
    EXPECT_EQ(network->groups()[1].parameters.size(), 16U);
}

TEST(Decoder, RefusesOtherInputs) {
    auto network = make_network(small_config());
    EXPECT_THROW(network->forward(torch::zeros({4}, torch::kInt64)), c10::Error);
    EXPECT_THROW(network->forward(torch::zeros({1, 4})), c10::Error);
    EXPECT_THROW(network->forward(torch::full({1, 4}, 61, torch::kInt64)), std::exception);
}

}  // namespace
}  // namespace distilld::models
