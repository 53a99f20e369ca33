#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/families/decoder_config.hpp"
#include "models/families/model_family.hpp"
#include "models/network/document_groups.hpp"
#include "models/network/linear.hpp"
#include "models/network/norm.hpp"
#include "models/network/rotary.hpp"

namespace distilld::models {

/// Causal self-attention with rotary positions, grouped keys and values (arXiv 2305.13245) and, where the family has
/// one, a sliding window.
class Attention {
  public:
    /// Declares query, key, value and output projection in `group`, and norms of queries and keys where the family has
    /// them, their names after `prefix`.
    Attention(ParameterGroup& group, const DecoderConfig& config, const DecoderNames& names, const std::string& prefix);

    /// `input` [B, T, H] -> [B, T, H]; with `documents` [1, N, H], see CausalLm::forward(). Takes time and memory by
    /// the squares of the documents' lengths, not of N: documents of one length are a batch, and batches are computed
    /// one after the other, on every device.
    [[nodiscard]] torch::Tensor forward(const torch::Tensor& input, const RotaryPositions::Angles& angles,
                                        const DocumentGroups& documents) const;

    /// In the order of their parameters.
    [[nodiscard]] std::vector<Linear*> linears();

  private:
    /// [B, heads, T, D], fewer heads of keys and values -> [B, T, heads · D].
    [[nodiscard]] torch::Tensor mix(const torch::Tensor& query, const torch::Tensor& key,
                                    const torch::Tensor& value) const;

    std::int64_t heads_;
    std::int64_t key_heads_;
    std::int64_t head_dim_;
    Linear query_;
    Linear key_;
    Linear value_;
    Linear output_;
    std::optional<RmsNorm> query_norm_;
    std::optional<RmsNorm> key_norm_;
    std::optional<std::int64_t> window_;
};

}  // namespace distilld::models
