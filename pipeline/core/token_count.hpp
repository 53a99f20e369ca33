#pragma once

#include <cstdint>

#include "pipeline/core/micro_batch.hpp"

namespace distilld {

/// Input positions of a batch that are not padding.
[[nodiscard]] inline std::uint64_t input_positions(const TokenBatch& batch) noexcept {
    std::uint64_t positions = 0;
    for (const std::int32_t length : batch.lengths) {
        positions += static_cast<std::uint64_t>(length);
    }
    return positions;
}

}  // namespace distilld
