#include "models/network/attention.hpp"

#include <optional>

namespace distilld::models {

Attention::Attention(ParameterGroup& group, const DecoderConfig& config, const DecoderNames& names,
                     const std::string& prefix)
    : heads_(config.num_attention_heads),
      key_heads_(config.num_key_value_heads),
      head_dim_(config.head_dim),
      query_(group, prefix + names.query, heads_ * head_dim_, config.hidden_size, config.query_key_value_bias),
      key_(group, prefix + names.key, key_heads_ * head_dim_, config.hidden_size, config.query_key_value_bias),
      value_(group, prefix + names.value, key_heads_ * head_dim_, config.hidden_size, config.query_key_value_bias),
      output_(group, prefix + names.output, config.hidden_size, heads_ * head_dim_, config.attention_output_bias) {}

torch::Tensor Attention::forward(const torch::Tensor& input, const RotaryPositions::Angles& angles) const {
    const auto rows = input.size(0);
    const auto columns = input.size(1);
    const auto split = [&](const Linear& projection, std::int64_t count) {
        return projection.forward(input).view({rows, columns, count, head_dim_}).transpose(1, 2);
    };
    const auto query = RotaryPositions::rotate(split(query_, heads_), angles);
    const auto key = RotaryPositions::rotate(split(key_, key_heads_), angles);
    const auto value = split(value_, key_heads_);
    const auto mixed = at::scaled_dot_product_attention(query, key, value, /*attn_mask=*/{}, /*dropout_p=*/0.0,
                                                        /*is_causal=*/true, /*scale=*/std::nullopt,
                                                        /*enable_gqa=*/heads_ != key_heads_);
    return output_.forward(mixed.transpose(1, 2).reshape({rows, columns, heads_ * head_dim_}));
}

}  // namespace distilld::models
