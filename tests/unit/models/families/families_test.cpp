#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "models/families/model_family.hpp"

namespace distilld::models {
namespace {

using testing::HasSubstr;

DecoderConfig parse(const std::string& json) {
    return parse_model_config(json, {"", "/student/config"}).value().decoder;
}

std::string parse_error(const std::string& json) {
    const auto parsed = parse_model_config(json, {"", "/student/config"});
    return parsed ? "" : parsed.error().message;
}

// What a config.json leaves out is what transformers puts there.
TEST(Families, SizesThatAreAbsentAreTheFamilys) {
    const DecoderConfig mistral = parse(R"({"model_type": "mistral"})");
    EXPECT_EQ(mistral.num_key_value_heads, 8);
    EXPECT_EQ(mistral.head_dim, 128);
    EXPECT_EQ(mistral.sliding_window, 4096);
    EXPECT_FALSE(mistral.query_key_value_bias);
    EXPECT_EQ(parse(R"({"model_type": "mistral", "sliding_window": null})").sliding_window, std::nullopt);
    EXPECT_EQ(parse(R"({"model_type": "mistral", "num_key_value_heads": null})").num_key_value_heads, 32);

    const DecoderConfig qwen2 = parse(R"({"model_type": "qwen2", "num_attention_heads": 64, "hidden_size": 512})");
    EXPECT_EQ(qwen2.num_key_value_heads, 32);
    EXPECT_EQ(qwen2.head_dim, 8);
    EXPECT_TRUE(qwen2.query_key_value_bias);
    EXPECT_FALSE(qwen2.attention_output_bias);
    EXPECT_EQ(qwen2.bos_token_id, std::nullopt);

    const DecoderConfig qwen3 = parse(R"({"model_type": "qwen3", "hidden_size": 1000})");
    EXPECT_EQ(qwen3.head_dim, 128);  // no part of hidden_size
    EXPECT_TRUE(qwen3.query_key_norm);
    EXPECT_FALSE(qwen3.query_key_value_bias);
}

TEST(Families, ASlidingWindowIsMistralsAlone) {
    EXPECT_THAT(parse_error(R"({"model_type": "llama", "sliding_window": 64})"),
                HasSubstr("/sliding_window: is 64, which changes what the network computes"));
    for (const std::string family : {"qwen2", "qwen3"}) {
        const std::string head = R"({"model_type": ")" + family + "\"";
        EXPECT_EQ(parse_error(head + R"(, "sliding_window": 64})"), "") << family;  // counts only with the next
        EXPECT_THAT(parse_error(head + R"(, "sliding_window": 64, "use_sliding_window": true})"),
                    HasSubstr("/use_sliding_window: is true"))
            << family;
        EXPECT_THAT(parse_error(head + R"(, "layer_types": ["full_attention", "sliding_attention"]})"),
                    HasSubstr("/layer_types: "))
            << family;
    }
    EXPECT_EQ(parse_error(R"({"model_type": "qwen2", "sliding_window": 64, "use_sliding_window": false})"), "");
    EXPECT_THAT(parse_error(R"({"model_type": "mistral", "sliding_window": 0})"), HasSubstr("/sliding_window: "));
}

}  // namespace
}  // namespace distilld::models
