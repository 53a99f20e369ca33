#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <mutex>

#include "models/families/decoder_config.hpp"
#include "models/network/document_groups.hpp"

namespace distilld::models {

/// Rotary positions (arXiv 2104.09864): the angles of each position and pair of dimensions. Computed in fp32 for every
/// compute dtype, as transformers does, and kept for the longest row seen.
class RotaryPositions {
  public:
    RotaryPositions(const DecoderConfig& config, torch::ScalarType type, const torch::Device& device);

    struct Angles {
        torch::Tensor cos;  ///< [T, head_dim / 2], compute dtype
        torch::Tensor sin;
    };
    /// For positions 0 … columns − 1.
    [[nodiscard]] Angles angles(std::int64_t columns);
    /// For the positions of these documents, each counted from 0.
    [[nodiscard]] Angles angles(const DocumentGroups& documents);

    /// For these positions, [N] int64 on the device, below `columns`.
    [[nodiscard]] Angles angles(const torch::Tensor& positions, std::int64_t columns);

    /// Rotates the pairs (i, i + D/2) of `input` [B, T, heads, D].
    [[nodiscard]] static torch::Tensor rotate(const torch::Tensor& input, const Angles& angles);

  private:
    torch::Tensor inverse_frequencies_;  ///< [head_dim / 2] fp32 on the CPU
    double attention_factor_ = 1.0;      ///< of cos and sin
    torch::ScalarType type_;
    torch::Device device_;
    std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();  // of kept_: several forwards at once
    Angles kept_;
};

}  // namespace distilld::models
