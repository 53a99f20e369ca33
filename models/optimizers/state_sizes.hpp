#pragma once

#include <cstdint>

#include "pipeline/core/spec_sections.hpp"

namespace distilld::models {

/// Minimum size of a parameter for 8-bit moments in adamw_8bit.
inline constexpr std::int64_t kMinQuantized = 4096;
/// Numbers that share a scale in adamw_8bit, as in bitsandbytes.
inline constexpr std::int64_t kQuantizedBlock = 256;

/// Bytes of the state that the optimizer of `training` keeps for `numbers` fp32 elements. The state of `exact` of them
/// is never quantized (embeddings, and tensors below kMinQuantized). Assumes whole blocks. Needs no libtorch, so that
/// estimates use it too.
[[nodiscard]] std::uint64_t optimizer_state_bytes(const TrainingSpec& training, std::uint64_t numbers,
                                                  std::uint64_t exact) noexcept;

/// Sums of each gradient that exist at a time: 1, or with training.gradient_groups as many as GroupedSum holds.
[[nodiscard]] std::uint64_t gradient_sums(const TrainingSpec& training) noexcept;

}  // namespace distilld::models
