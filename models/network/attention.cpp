#include "models/network/attention.hpp"

#include <torch/autograd.h>
#include <torch/utils.h>
#include <torch/version.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "models/kernels/causal_attention.hpp"
#include "models/kernels/one_query.hpp"

namespace distilld::models {

namespace {

std::vector<Linear> declare_inputs(const LayerPlace& place) {
    const DecoderConfig& config = place.config;
    const std::int64_t queries = config.num_attention_heads * config.head_dim;
    const std::int64_t keys = config.num_key_value_heads * config.head_dim;
    const LinearForm form{.bias = config.query_key_value_bias, .transposed = config.transposed_linears};
    std::vector<Linear> inputs;
    const auto declare = [&](const char* name, std::int64_t outputs) {
        inputs.emplace_back(place.group, place.name(name), outputs, config.hidden_size, form);
    };
    if (config.fused_query_key_value) {
        declare(place.names.query, queries + 2 * keys);
    } else {
        declare(place.names.query, queries);
        declare(place.names.key, keys);
        declare(place.names.value, keys);
    }
    return inputs;
}

double scale_of_scores(const LayerPlace& place) {
    const DecoderConfig& config = place.config;
    const double whole = config.scaled_scores ? 1.0 / std::sqrt(static_cast<double>(config.head_dim)) : 1.0;
    return config.scores_scaled_by_layer ? whole / static_cast<double>(place.number + 1) : whole;
}

/// libtorch's flash attention for CPUs takes fewer heads of keys since 2.9 (its pull request 157893).
constexpr bool kFewerHeadsOnCpu = TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 9);

/// Whether attention takes grouped keys without repeating them. Off the CPU only flash attention does, in half
/// precision and without a mask; the other kernels would hold a [T, T] matrix per head.
bool takes_fewer_heads(const torch::Tensor& query, bool masked) {
    return query.device().is_cpu() ? kFewerHeadsOnCpu : query.element_size() == 2 && !masked;
}

/// [B, heads, T, D] -> [B, heads · times, T, D]: each head is repeated `times` times in a row.
torch::Tensor repeated_heads(const torch::Tensor& heads, std::int64_t times) {
    return heads.unsqueeze(2)
        .expand({heads.size(0), heads.size(1), times, heads.size(2), heads.size(3)})
        .reshape({heads.size(0), heads.size(1) * times, heads.size(2), heads.size(3)});
}

/// Attention over all positions up to each one, by the kernel.
class CausallyAttended : public torch::autograd::Function<CausallyAttended> {
  public:
    static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& query,
                                 const torch::Tensor& key, const torch::Tensor& value, double scale) {
        const kernels::AttendedHeads attended = kernels::causal_attention(query, key, value, scale);
        context->save_for_backward({query, key, value, attended.out, attended.log_sums});
        context->saved_data["scale"] = scale;
        return attended.out;
    }

    static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                   torch::autograd::variable_list gradients) {
        const auto saved = context->get_saved_variables();
        const kernels::AttentionGradients back = kernels::causal_attention_backward(
            gradients[0], saved[0], saved[1], saved[2], {saved[3], saved[4]}, context->saved_data["scale"].toDouble());
        return {back.query, back.key, back.value, torch::Tensor()};
    }
};

}  // namespace

Attention::Attention(const LayerPlace& place)
    : heads_(place.config.num_attention_heads),
      key_heads_(place.config.num_key_value_heads),
      head_dim_(place.config.head_dim),
      inputs_(declare_inputs(place)),
      output_(place.group, place.name(place.names.output), place.config.hidden_size, heads_ * head_dim_,
              place.into_stream(place.config.attention_output_bias)),
      window_(place.config.sliding_window),
      scale_(scale_of_scores(place)),
      scores_in_fp32_(place.config.scores_in_fp32),
      dropout_(place.dropout_seed, place.config.dropout.attention, place.name("attention weights")) {
    const DecoderConfig& config = place.config;
    if (config.query_key_norm) {
        query_norm_.emplace(place.group, place.name(place.names.query_norm), head_dim_, config.norm_epsilon);
        key_norm_.emplace(place.group, place.name(place.names.key_norm), head_dim_, config.norm_epsilon);
    }
}

std::vector<Linear*> Attention::linears() {
    std::vector<Linear*> all;
    for (Linear& input : inputs_) {
        all.push_back(&input);
    }
    all.push_back(&output_);
    return all;
}

Attention::Projected Attention::projected(const torch::Tensor& input, const RotaryPositions::Angles& angles,
                                          ProductKind kind) const {
    const auto rows = input.size(0);
    const auto columns = input.size(1);
    const std::int64_t keys_size = key_heads_ * head_dim_;
    const std::vector<torch::Tensor> parts =
        inputs_.size() == 1
            ? inputs_.front().forward(input, kind).split_with_sizes({heads_ * head_dim_, keys_size, keys_size}, -1)
            : Linear::forward_all({&inputs_[0], &inputs_[1], &inputs_[2]}, input, kind);
    const auto split = [&](std::size_t part, std::int64_t count, const std::optional<RmsNorm>& norm) {
        const auto heads = parts[part].view({rows, columns, count, head_dim_});
        return norm ? norm->forward(heads) : heads;
    };
    const auto turned = [&](const torch::Tensor& heads) {
        return angles.cos.defined() ? RotaryPositions::rotate(heads, angles) : heads;
    };
    return {turned(split(0, heads_, query_norm_)).transpose(1, 2),
            turned(split(1, key_heads_, key_norm_)).transpose(1, 2),
            split(2, key_heads_, std::nullopt).transpose(1, 2)};
}

torch::Tensor Attention::forward(const torch::Tensor& input, const RotaryPositions::Angles& angles,
                                 const DocumentGroups& documents) const {
    const auto [query, key, value] = projected(input, angles);
    if (documents.empty()) {
        return output_.forward(mix(query, key, value, 0));
    }
    std::vector<std::int64_t> sizes;
    for (const DocumentGroup& group : documents) {
        sizes.push_back(group.count * group.length);
    }
    // One autograd node splits all groups: narrowing each one alone would give each a gradient of the full size.
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
        mixed.push_back(mix(batch(queries[i]), batch(keys[i]), batch(values[i]), i).view({1, sizes[i], -1}));
    }
    return output_.forward(torch::cat(mixed, 1));
}

torch::Tensor Attention::extend(const torch::Tensor& input, const RotaryPositions::Angles& angles,
                                const std::vector<Extension>& sequences, std::size_t layer, ProductKind kind) const {
    const auto [query, key, value] = projected(input, angles, kind);
    const auto keys_of = key[0].transpose(0, 1);  // [positions, key heads, D]
    const auto values_of = value[0].transpose(0, 1);
    // No bit depends on the other sequences: by the kernel, or one after the other.
    if (kind == ProductKind::few_rows && query.is_cpu()) {
        std::vector<kernels::SeenPositions> seen;
        seen.reserve(sequences.size());
        for (const auto& [cache, count] : sequences) {
            LayerCache& held = cache->layers[layer];
            make_room(held, cache->length, cache->length + 1, keys_of);
            const std::int64_t hidden = window_ ? std::max<std::int64_t>(cache->length + 1 - *window_, 0) : 0;
            seen.push_back({held.keys, held.values, hidden, cache->length});
        }
        const auto rows = kernels::one_query_attention(query[0].transpose(0, 1), keys_of, values_of, seen, scale_);
        return output_.forward(rows.unsqueeze(0), kind);
    }
    std::vector<torch::Tensor> mixed;
    std::int64_t begin = 0;
    for (const auto& [cache, count] : sequences) {
        const auto [keys, values] = append(cache->layers[layer], cache->length, keys_of.narrow(0, begin, count),
                                           values_of.narrow(0, begin, count));
        mixed.push_back(mix(query.narrow(2, begin, count), keys.unsqueeze(0), values.unsqueeze(0), 0));
        begin += count;
    }
    if (begin < input.size(1)) {
        mixed.push_back(torch::zeros({1, input.size(1) - begin, heads_ * head_dim_}, input.options()));
    }
    return output_.forward(torch::cat(mixed, 1), kind);
}

torch::Tensor Attention::mix(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                             std::uint64_t part) const {
    const auto rows = query.size(0);
    const auto columns = query.size(2);
    const auto positions = key.size(2);
    const bool hides =
        window_ && positions > *window_;  // otherwise a row needs no mask, and can use the faster kernels
    const bool widens = scores_in_fp32_ && at::isReducedFloatingType(query.scalar_type());
    torch::Tensor mixed;
    if (widens || dropout_.active()) {
        mixed = mix_in_steps(query, key, value, part);
    } else if (!hides && columns == positions && kernels::takes_causal_attention(query, key, value)) {
        mixed = torch::GradMode::is_enabled() ? CausallyAttended::apply(query, key, value, scale_)
                                              : kernels::causal_attention(query, key, value, scale_).out;
    } else {
        std::optional<torch::Tensor> mask;
        const bool sees_all = columns == 1 && !hides;  // the last position
        if (hides || (columns != positions && !sees_all)) {
            mask = seen(columns, positions, query.device());
        }
        const bool fewer = heads_ != key_heads_;
        const bool repeats = fewer && !takes_fewer_heads(query, mask.has_value());
        const std::int64_t times = heads_ / key_heads_;
        mixed = at::scaled_dot_product_attention(
            query, repeats ? repeated_heads(key, times) : key, repeats ? repeated_heads(value, times) : value, mask,
            /*dropout_p=*/0.0, /*is_causal=*/!mask && !sees_all, scale_, /*enable_gqa=*/fewer && !repeats);
    }
    return mixed.transpose(1, 2).reshape({rows, columns, heads_ * head_dim_});
}

torch::Tensor Attention::mix_in_steps(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                                      std::uint64_t part) const {
    const auto type = query.scalar_type();
    const auto wide = type == torch::kDouble ? torch::kDouble : torch::kFloat;
    const auto scored_in = scores_in_fp32_ ? wide : type;
    const auto for_each_query = [this](const torch::Tensor& heads) {
        return heads_ == key_heads_ ? heads : repeated_heads(heads, heads_ / key_heads_);
    };
    const auto keys = for_each_query(key).to(scored_in).transpose(-1, -2);
    const auto scores = torch::matmul(query.to(scored_in), keys) * scale_;
    const auto hidden = torch::logical_not(seen(query.size(2), key.size(2), query.device()));
    const auto weights =
        torch::softmax(scores.masked_fill(hidden, -std::numeric_limits<double>::infinity()), -1, wide).to(type);
    return torch::matmul(dropout_.forward(weights, part), for_each_query(value));
}

torch::Tensor Attention::seen(std::int64_t queries, std::int64_t positions, const torch::Device& device) const {
    const auto all = torch::arange(positions, device);
    const auto back = all.narrow(0, positions - queries, queries).unsqueeze(1) - all.unsqueeze(0);
    return window_ ? torch::logical_and(back >= 0, back < *window_) : back >= 0;
}

}  // namespace distilld::models
