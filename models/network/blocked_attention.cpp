#include "models/network/blocked_attention.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "base/cores.hpp"

namespace distilld::models {
namespace {

using torch::Tensor;

constexpr std::int64_t kBlock = 128;

/// The heads that share a key head, in rows: [B, heads, T, D] -> [B · key heads, times, T, D].
Tensor grouped(const Tensor& query, std::int64_t key_heads) {
    const std::int64_t times = query.size(1) / key_heads;
    return query.reshape({query.size(0) * key_heads, times, query.size(2), query.size(3)});
}

/// Queries [begin, end) of all heads, one key head after another.
class Block {
  public:
    Block(std::int64_t begin_query, std::int64_t columns)
        : begin(begin_query), end(std::min(begin_query + kBlock, columns)) {}

    /// [N, times, T, D] -> [N, times · queries, D].
    [[nodiscard]] Tensor queries_of(const Tensor& grouped_queries) const {
        return grouped_queries.narrow(2, begin, end - begin).flatten(1, 2);
    }
    /// [N, T, D] -> [N, keys, D].
    [[nodiscard]] Tensor keys_of(const Tensor& keys) const { return keys.narrow(1, 0, end); }

    /// The weights [N, times · queries, keys] of these queries.
    [[nodiscard]] Tensor weights(const Tensor& queries, const Tensor& keys, double scale) const {
        const std::int64_t count = end - begin;
        Tensor hidden = torch::zeros({count, end}, queries.options());
        hidden.narrow(1, begin, count)
            .copy_(torch::full({count, count}, -std::numeric_limits<double>::infinity(), queries.options()).triu(1));
        const Tensor mask = hidden.repeat({queries.size(1) / count, 1});
        return at::_softmax(torch::baddbmm(mask, queries, keys.transpose(1, 2), 1, scale), -1, false);
    }

    std::int64_t begin;
    std::int64_t end;
};

class BlockedAttention : public torch::autograd::Function<BlockedAttention> {
  public:
    static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& query, const Tensor& key,
                          const Tensor& value, double scale) {
        const Tensor queries = grouped(query, key.size(1));
        const Tensor keys = key.flatten(0, 1).contiguous();
        const Tensor values = value.flatten(0, 1).contiguous();
        context->save_for_backward({queries, keys, values});
        context->saved_data["scale"] = scale;
        context->saved_data["key_heads"] = key.size(1);
        Tensor out = torch::empty_like(queries, torch::MemoryFormat::Contiguous);
        for (std::int64_t begin = 0; begin < queries.size(2); begin += kBlock) {
            const Block block(begin, queries.size(2));
            const Tensor rows = block.queries_of(queries);
            const Tensor mixed = torch::bmm(block.weights(rows, block.keys_of(keys), scale), block.keys_of(values));
            put(out, block, mixed);
        }
        return out.view(query.sizes());
    }

    static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                   torch::autograd::variable_list gradients) {
        const auto saved = context->get_saved_variables();
        const Tensor& queries = saved[0];
        const Tensor& keys = saved[1];
        const Tensor& values = saved[2];
        const double scale = context->saved_data["scale"].toDouble();
        const std::int64_t key_heads = context->saved_data["key_heads"].toInt();
        const Tensor incoming = grouped(gradients[0], key_heads);
        const auto sums = queries.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat;
        Tensor of_queries = torch::empty_like(queries, torch::MemoryFormat::Contiguous);
        Tensor of_keys = torch::zeros_like(keys, sums);
        Tensor of_values = torch::zeros_like(values, sums);
        for (std::int64_t begin = 0; begin < queries.size(2); begin += kBlock) {
            const Block block(begin, queries.size(2));
            const Tensor rows = block.queries_of(queries);
            const Tensor gradient = block.queries_of(incoming);
            const Tensor weights = block.weights(rows, block.keys_of(keys), scale);
            of_values.narrow(1, 0, block.end).add_(torch::bmm(weights.transpose(1, 2), gradient));
            const Tensor of_weights = torch::bmm(gradient, block.keys_of(values).transpose(1, 2));
            const Tensor of_scores =
                at::_softmax_backward_data(of_weights, weights, -1, weights.scalar_type()).mul_(scale);
            put(of_queries, block, torch::bmm(of_scores, block.keys_of(keys)));
            of_keys.narrow(1, 0, block.end).add_(torch::bmm(of_scores.transpose(1, 2), rows));
        }
        const std::int64_t batch = gradients[0].size(0);
        const auto back = [&](const Tensor& heads) {
            return heads.to(queries.scalar_type()).view({batch, key_heads, heads.size(1), heads.size(2)});
        };
        return {of_queries.view(gradients[0].sizes()), back(of_keys), back(of_values), Tensor()};
    }

  private:
    /// Puts [N, times · queries, D] in its place of [N, times, T, D].
    static void put(Tensor& all, const Block& block, const Tensor& rows) {
        const std::int64_t count = block.end - block.begin;
        all.narrow(2, block.begin, count).copy_(rows.view({all.size(0), all.size(1), count, all.size(3)}));
    }
};

}  // namespace

bool prefers_blocked_attention(const Tensor& query) {
    static const bool emulated = bf16_products(cpuinfo()) == Bf16Products::dot_products;
    return emulated && query.is_cpu() && query.scalar_type() == torch::kBFloat16;
}

Tensor blocked_attention(const Tensor& query, const Tensor& key, const Tensor& value, double scale) {
    return BlockedAttention::apply(query, key, value, scale);
}

}  // namespace distilld::models
