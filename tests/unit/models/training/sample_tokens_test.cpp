#include "models/training/sample_tokens.hpp"

#include <gtest/gtest.h>
#include <torch/utils.h>

#include <algorithm>
#include <set>
#include <vector>

#include "tests/unit/models/network/small_network.hpp"

namespace distilld::models {
namespace {

using torch::Tensor;
using Ids = std::vector<std::int32_t>;

/// Of which no id ends a text.
ModelConfig endless() {
    ModelConfig config = test::small_config();
    config.decoder.eos_token_ids.clear();
    return config;
}

Ids greedy_by_hand(CausalLm& network, Ids ids, std::size_t count) {
    const torch::NoGradGuard no_grad;
    Ids added;
    for (std::size_t i = 0; i < count; ++i) {
        const Tensor row = torch::tensor(std::vector<std::int64_t>(ids.begin(), ids.end())).unsqueeze(0);
        const auto next = network.project(network.forward(row))[0][-1].argmax().item<std::int64_t>();
        ids.push_back(static_cast<std::int32_t>(next));
        added.push_back(ids.back());
    }
    return added;
}

TEST(SampleTokens, TakesTheLikeliestOneByOne) {
    const auto network = test::make_network(endless());
    const Ids prompt{3, 20, 37};
    EXPECT_EQ(sample_tokens(*network, prompt, {.max_tokens = 12}), greedy_by_hand(*network, prompt, 12));
}

TEST(SampleTokens, EndsWhereTheTextEnds) {
    ModelConfig config = endless();
    const Ids prompt{3, 20, 37};
    const Ids whole = greedy_by_hand(*test::make_network(config), prompt, 12);
    // The first id that was not there before.
    const auto place = std::ranges::find_if(whole, [&](std::int32_t id) { return id != whole.front(); });
    ASSERT_NE(place, whole.end());
    const Ids before(whole.begin(), place);
    EXPECT_EQ(sample_tokens(*test::make_network(config), prompt, {.max_tokens = 12, .end = *place}), before);
    config.decoder.eos_token_ids = {*place};
    EXPECT_EQ(sample_tokens(*test::make_network(config), prompt, {.max_tokens = 12}), before);
}

TEST(SampleTokens, DrawsBySeedAlone) {
    const auto network = test::make_network(endless());
    std::set<Ids> drawn;
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
        const SampleOptions options{.max_tokens = 10, .temperature = 1.5, .seed = seed};
        const Ids first = sample_tokens(*network, {1, 2}, options);
        EXPECT_EQ(first.size(), 10U);
        EXPECT_EQ(sample_tokens(*network, {1, 2}, options), first);
        drawn.insert(first);
    }
    EXPECT_EQ(drawn.size(), 4U);
    EXPECT_EQ(sample_tokens(*network, {1, 2}, {.max_tokens = 6, .temperature = 1e-6}),
              sample_tokens(*network, {1, 2}, {.max_tokens = 6}));
}

TEST(SampleTokens, SeesNoMoreThanTheNetworkHasPositions) {
    ModelConfig config = endless();
    config.decoder.max_position_embeddings = 8;
    EXPECT_EQ(sample_tokens(*test::make_network(config), Ids(20, 5), {.max_tokens = 10}).size(), 10U);
}

TEST(SampleTokens, WeightsGoneAstrayEndIt) {
    const auto network = test::make_network(endless());
    {
        const torch::NoGradGuard no_grad;
        network->groups().back().parameters.front().master.fill_(std::numeric_limits<float>::quiet_NaN());
    }
    EXPECT_TRUE(sample_tokens(*network, {1, 2}, {.max_tokens = 10}).empty());
}

}  // namespace
}  // namespace distilld::models
