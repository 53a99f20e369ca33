#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/network/document_groups.hpp"
#include "models/network/dropout.hpp"
#include "models/network/kv_cache.hpp"
#include "models/network/layer_place.hpp"
#include "models/network/linear.hpp"
#include "models/network/norm.hpp"
#include "models/network/rotary.hpp"

namespace distilld::models {

/// Causal self-attention with grouped keys and values (arXiv 2305.13245), optional rotary positions and, if the family
/// has one, a sliding window.
class Attention {
  public:
    /// Declares the query, key, value (or one fused) and output projections, and the norms of queries and keys if the
    /// family has them.
    explicit Attention(const LayerPlace& place);

    /// `input` [B, T, H] -> [B, T, H]; [1, N, H] with `documents`, see CausalLm::forward(). `angles` rotate queries and
    /// keys, unless undefined. Time and memory grow with the squares of the documents' lengths, not of N: on every
    /// device, documents of equal length form a batch, and batches are computed one after the other.
    [[nodiscard]] torch::Tensor forward(const torch::Tensor& input, const RotaryPositions::Angles& angles,
                                        const DocumentGroups& documents) const;

    /// `input` [1, N, H] -> [1, N, H]: new positions of sequences, one after the other, then positions that belong to
    /// none, whose output is unspecified. Each sees its sequence's earlier positions in layer `layer` of the cache,
    /// which gets the new ones; the caller raises KvCache::length. `angles` are those of the new positions. No
    /// gradients.
    [[nodiscard]] torch::Tensor extend(const torch::Tensor& input, const RotaryPositions::Angles& angles,
                                       const std::vector<Extension>& sequences, std::size_t layer,
                                       ProductKind kind) const;

    /// In the order of their parameters.
    [[nodiscard]] std::vector<Linear*> linears();

  private:
    struct Projected {
        torch::Tensor query;  ///< [B, heads, T, D], rotated
        torch::Tensor key;    ///< [B, key heads, T, D], rotated
        torch::Tensor value;  ///< [B, key heads, T, D]
    };
    [[nodiscard]] Projected projected(const torch::Tensor& input, const RotaryPositions::Angles& angles,
                                      ProductKind kind = ProductKind::library) const;
    /// [B, heads, T, D], keys and values [B, key heads, S, D] -> [B, T, heads · D]: the queries are those of the last T
    /// of the S positions. `part` numbers the calls of a forward.
    [[nodiscard]] torch::Tensor mix(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                                    std::uint64_t part) const;
    /// Without a fused kernel: [B, heads, T, D]. Needs [B, heads, T, S] of memory.
    [[nodiscard]] torch::Tensor mix_in_steps(const torch::Tensor& query, const torch::Tensor& key,
                                             const torch::Tensor& value, std::uint64_t part) const;
    /// [T, S]: which of the positions each of the last T of them sees.
    [[nodiscard]] torch::Tensor seen(std::int64_t queries, std::int64_t positions, const torch::Device& device) const;

    std::int64_t heads_;
    std::int64_t key_heads_;
    std::int64_t head_dim_;
    std::vector<Linear> inputs_;  ///< of queries, keys, values; or one fused
    Linear output_;
    std::optional<RmsNorm> query_norm_;
    std::optional<RmsNorm> key_norm_;
    std::optional<std::int64_t> window_;
    double scale_;  ///< of scores
    bool scores_in_fp32_;
    Dropout dropout_;
};

}  // namespace distilld::models
