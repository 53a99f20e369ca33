#include "models/network/attention.hpp"

#include <optional>
#include <vector>

namespace distilld::models {

Attention::Attention(ParameterGroup& group, const DecoderConfig& config, const DecoderNames& names,
                     const std::string& prefix)
    : heads_(config.num_attention_heads),
      key_heads_(config.num_key_value_heads),
      head_dim_(config.head_dim),
      query_(group, prefix + names.query, heads_ * head_dim_, config.hidden_size, config.query_key_value_bias),
      key_(group, prefix + names.key, key_heads_ * head_dim_, config.hidden_size, config.query_key_value_bias),
      value_(group, prefix + names.value, key_heads_ * head_dim_, config.hidden_size, config.query_key_value_bias),
      output_(group, prefix + names.output, config.hidden_size, heads_ * head_dim_, config.attention_output_bias),
      window_(config.sliding_window) {
    if (config.query_key_norm) {
        query_norm_.emplace(group, prefix + names.query_norm, head_dim_, config.norm_epsilon);
        key_norm_.emplace(group, prefix + names.key_norm, head_dim_, config.norm_epsilon);
    }
}

std::vector<Linear*> Attention::linears() {
    return {&query_, &key_, &value_, &output_};
}

torch::Tensor Attention::forward(const torch::Tensor& input, const RotaryPositions::Angles& angles,
                                 const DocumentGroups& documents) const {
    const auto rows = input.size(0);
    const auto columns = input.size(1);
    const auto split = [&](const Linear& projection, std::int64_t count, const std::optional<RmsNorm>& norm) {
        const auto heads = projection.forward(input).view({rows, columns, count, head_dim_});
        return (norm ? norm->forward(heads) : heads).transpose(1, 2);
    };
    const auto query = RotaryPositions::rotate(split(query_, heads_, query_norm_), angles);
    const auto key = RotaryPositions::rotate(split(key_, key_heads_, key_norm_), angles);
    const auto value = split(value_, key_heads_, std::nullopt);
    if (documents.empty()) {
        return output_.forward(mix(query, key, value));
    }
    std::vector<std::int64_t> sizes;
    for (const DocumentGroup& group : documents) {
        sizes.push_back(group.count * group.length);
    }
    // One node of autograd for all groups: each narrowed by itself would have a gradient as large as all.
    const auto queries = query.split_with_sizes(sizes, 2);
    const auto keys = key.split_with_sizes(sizes, 2);
    const auto values = value.split_with_sizes(sizes, 2);
    std::vector<torch::Tensor> mixed;
    for (std::size_t i = 0; i < documents.size(); ++i) {
        const DocumentGroup& group = documents[i];
        // [1, heads, count · length, D] -> [count, heads, length, D]
        const auto batch = [&group](const torch::Tensor& heads) {
            return heads.squeeze(0).unflatten(1, {group.count, group.length}).transpose(0, 1);
        };
        mixed.push_back(mix(batch(queries[i]), batch(keys[i]), batch(values[i])).view({1, sizes[i], -1}));
    }
    return output_.forward(torch::cat(mixed, 1));
}

namespace {

/// Whether attention takes fewer heads of keys than of queries as they are. Off the CPU only flash attention does,
/// which is for half precision and takes no mask; the others would hold a [T, T] matrix a head.
bool takes_fewer_heads(const torch::Tensor& query, bool masked) {
    return query.device().is_cpu() || (query.element_size() == 2 && !masked);
}

/// [B, heads, T, D] -> [B, heads · times, T, D], each head `times` times side by side.
torch::Tensor repeated_heads(const torch::Tensor& heads, std::int64_t times) {
    return heads.unsqueeze(2)
        .expand({heads.size(0), heads.size(1), times, heads.size(2), heads.size(3)})
        .reshape({heads.size(0), heads.size(1) * times, heads.size(2), heads.size(3)});
}

}  // namespace

torch::Tensor Attention::mix(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value) const {
    const auto rows = query.size(0);
    const auto columns = query.size(2);
    // A row within the window needs no mask, and goes through the faster kernels.
    std::optional<torch::Tensor> mask;
    if (window_ && columns > *window_) {
        const auto positions = torch::arange(columns, query.device());
        const auto back = positions.unsqueeze(1) - positions.unsqueeze(0);
        mask = torch::logical_and(back >= 0, back < *window_);
    }
    const bool fewer = heads_ != key_heads_;
    const bool repeats = fewer && !takes_fewer_heads(query, mask.has_value());
    const std::int64_t times = heads_ / key_heads_;
    const auto mixed = at::scaled_dot_product_attention(
        query, repeats ? repeated_heads(key, times) : key, repeats ? repeated_heads(value, times) : value, mask,
        /*dropout_p=*/0.0, /*is_causal=*/!mask, /*scale=*/std::nullopt, /*enable_gqa=*/fewer && !repeats);
    return mixed.transpose(1, 2).reshape({rows, columns, heads_ * head_dim_});
}

}  // namespace distilld::models
