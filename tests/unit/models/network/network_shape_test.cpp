#include "models/families/network_shape.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "models/families/module_names.hpp"
#include "tests/unit/models/network/small_network.hpp"

namespace distilld::models {
namespace {

/// A dry run tells the number of parameters without a network; it must be the network's own.
TEST(NetworkShape, HasAsManyNumbersAsTheNetwork) {
    const std::string sizes = R"("vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
        "num_attention_heads": 4, "max_position_embeddings": 64, )";
    const std::string configs[] = {
        R"({"model_type": "llama", "num_key_value_heads": 2, "tie_word_embeddings": true, )" + sizes +
            R"("head_dim": 16})",
        R"({"model_type": "llama", "attention_bias": true, "mlp_bias": true, "tie_word_embeddings": false, )" + sizes +
            R"("num_key_value_heads": 1})",
        R"({"model_type": "mistral", )" + sizes + R"("num_key_value_heads": 2})",
        R"({"model_type": "qwen2", )" + sizes + R"("num_key_value_heads": 2})",
        R"({"model_type": "qwen3", )" + sizes + R"("num_key_value_heads": 2, "head_dim": 8})",
        R"({"model_type": "gpt2", "vocab_size": 61, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 24})",
    };
    for (const std::string& json : configs) {
        const auto config = parse_model_config(json, {});
        ASSERT_TRUE(config) << json << ": " << config.error().message;
        const auto network = test::make_network(*config);
        EXPECT_EQ(network_shape(*config).parameters(), parameter_count(network->groups())) << json;
        std::uint64_t linears = 0;
        for (const auto& linear : network_shape(*config).linears) {
            linears += linear.parameters();
        }
        EXPECT_GT(linears, 0U);
        std::vector<std::string> names;
        for (const auto& module : network->linear_modules()) {
            names.push_back(module.linear->name());
        }
        EXPECT_EQ(linear_names(*config), names) << json;
    }
}

}  // namespace
}  // namespace distilld::models
