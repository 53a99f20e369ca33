#pragma once

#include <cstdint>

#include "pipeline/core/job_spec.hpp"

namespace distilld::models {

/// Numbers of a parameter from which on adamw_8bit keeps its moments in 8 bits.
inline constexpr std::int64_t kMinQuantized = 4096;
/// Numbers that share a scale in adamw_8bit, as in bitsandbytes.
inline constexpr std::int64_t kQuantizedBlock = 256;

/// Bytes of the state that the optimizer of `training` keeps for fp32 parameters: `numbers` in all, `exact` of them in
/// tensors whose state is never quantized (embeddings, and tensors below kMinQuantized). Whole blocks are assumed.
/// Needs no libtorch, so that estimates use it too.
[[nodiscard]] std::uint64_t optimizer_state_bytes(const TrainingSpec& training, std::uint64_t numbers,
                                                  std::uint64_t exact) noexcept;

}  // namespace distilld::models
