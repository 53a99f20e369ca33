#include "models/network/kv_cache.hpp"

#include <gtest/gtest.h>
#include <torch/utils.h>

#include <functional>
#include <memory>
#include <vector>

#include "tests/unit/models/network/small_network.hpp"

namespace distilld::models {
namespace {

using test::ids;
using test::make_network;
using test::same_bits;
using test::small_config;

/// Rows of products that have the same bits in every larger product (decision 0003).
constexpr std::int64_t kRows = 32;

torch::Tensor padded(const std::vector<torch::Tensor>& tokens) {
    const torch::Tensor all = torch::cat(tokens);
    return all.size(0) >= kRows ? all : torch::constant_pad_nd(all, {0, kRows - all.size(0)});
}

/// The hidden states of `tokens` [T], read in these pieces.
torch::Tensor read_in_pieces(CausalLm& network, const torch::Tensor& tokens, const std::vector<std::int64_t>& pieces,
                             ProductKind kind = ProductKind::library) {
    KvCache cache;
    std::vector<torch::Tensor> states;
    std::int64_t begin = 0;
    for (const std::int64_t count : pieces) {
        const torch::Tensor piece = tokens.narrow(0, begin, count);
        const torch::Tensor hidden = network.extend(kind == ProductKind::library ? padded({piece}) : piece,
                                                    {{.cache = &cache, .count = count}}, kind);
        states.push_back(hidden.narrow(0, 0, count));
        begin += count;
    }
    EXPECT_EQ(cache.length, begin);
    return torch::cat(states);
}

/// Learned positions, fused inputs.
ModelConfig gpt2_config() {
    return parse_model_config(R"({"model_type": "gpt2", "vocab_size": 61, "n_embd": 32, "n_layer": 3, "n_head": 4,
        "n_positions": 24, "initializer_range": 0.2})",
                              {})
        .value();
}

struct Network {
    const char* name;
    std::function<void(ModelConfig&)> change;
};

class KvCacheOf : public ::testing::TestWithParam<Network> {
  protected:
    KvCacheOf() {
        ModelConfig config = small_config();
        GetParam().change(config);
        network_ = make_network(config);
    }

    std::unique_ptr<CausalLm> network_;
};

TEST_P(KvCacheOf, ASequenceReadInPiecesHasTheStatesOfTheWhole) {
    const torch::NoGradGuard no_grad;
    const torch::Tensor tokens = ids(1, 23)[0];
    const torch::Tensor whole = network_->forward(tokens.unsqueeze(0))[0];
    for (const std::vector<std::int64_t>& pieces :
         std::vector<std::vector<std::int64_t>>{{23}, {1, 1, 21}, {9, 1, 1, 1, 11}, std::vector<std::int64_t>(23, 1)}) {
        const torch::Tensor states = read_in_pieces(*network_, tokens, pieces);
        EXPECT_TRUE(torch::allclose(states, whole, 1e-4, 1e-5)) << (states - whole).abs().max().item<float>();
    }
    const torch::Tensor by_one =
        read_in_pieces(*network_, tokens, std::vector<std::int64_t>(23, 1), ProductKind::few_rows);
    EXPECT_TRUE(torch::allclose(by_one, whole, 1e-4, 1e-5)) << (by_one - whole).abs().max().item<float>();
}

TEST_P(KvCacheOf, CompanyChangesNoBit) {
    const torch::Tensor all = ids(5, 12);
    std::vector<torch::Tensor> alone;
    for (std::int64_t row = 0; row < 5; ++row) {
        alone.push_back(read_in_pieces(*network_, all[row], {7, 1, 1, 1, 1, 1}));
    }
    // Each begins when the one before has read its first piece, and ends before it.
    std::vector<KvCache> caches(5);
    std::vector<std::vector<torch::Tensor>> states(5);
    for (std::int64_t step = 0; step < 10; ++step) {
        std::vector<torch::Tensor> tokens;
        std::vector<Extension> extended;
        std::vector<std::size_t> who;
        for (std::size_t row = 5; row-- > 0;) {
            const std::int64_t own = step - static_cast<std::int64_t>(row);
            if (own >= 0 && own < 6) {
                const std::int64_t count = own == 0 ? 7 : 1;
                tokens.push_back(all[static_cast<std::int64_t>(row)].narrow(0, caches[row].length, count));
                extended.push_back({&caches[row], count});
                who.push_back(row);
            }
        }
        const torch::Tensor hidden = network_->extend(padded(tokens), extended, ProductKind::library);
        std::int64_t begin = 0;
        for (std::size_t i = 0; i < who.size(); ++i) {
            states[who[i]].push_back(hidden.narrow(0, begin, extended[i].count));
            begin += extended[i].count;
        }
    }
    for (std::size_t row = 0; row < 5; ++row) {
        EXPECT_TRUE(same_bits(torch::cat(states[row]), alone[row])) << "sequence " << row;
    }
}

INSTANTIATE_TEST_SUITE_P(
    Networks, KvCacheOf,
    ::testing::Values(Network{"Plain", [](ModelConfig&) {}},
                      Network{"OneKeyHead", [](ModelConfig& config) { config.decoder.num_key_value_heads = 1; }},
                      Network{"Window", [](ModelConfig& config) { config.decoder.sliding_window = 5; }},
                      Network{"ScoresInFp32", [](ModelConfig& config) { config.decoder.scores_in_fp32 = true; }},
                      Network{"Gpt2", [](ModelConfig& config) { config = gpt2_config(); }}),
    [](const auto& row) { return row.param.name; });

TEST(KvCache, ReadsNoFurtherThanThereArePositions) {
    const auto network = make_network(small_config());
    KvCache cache;
    const torch::Tensor tokens = ids(1, 65)[0];
    EXPECT_THROW((void)network->extend(tokens, {{.cache = &cache, .count = 65}}, ProductKind::library), c10::Error);
    EXPECT_EQ(cache.length, 0);
    (void)network->extend(tokens.narrow(0, 0, 64), {{.cache = &cache, .count = 64}}, ProductKind::library);
    EXPECT_EQ(cache.length, 64);
}

}  // namespace
}  // namespace distilld::models
