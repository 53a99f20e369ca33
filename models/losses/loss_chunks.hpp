#pragma once

#include <algorithm>
#include <cstdint>

namespace distilld::models {

/// Rows of logits that the loss holds at once. Depends on the vocabulary only, so that sums have one order. About 256
/// MiB in fp32, 128 MiB in bf16. Needs no libtorch, so that estimates use it too.
[[nodiscard]] constexpr std::int64_t loss_chunk_rows(std::int64_t vocabulary_size) noexcept {
    constexpr std::int64_t kElements = std::int64_t{1} << 26;
    const std::int64_t rows = kElements / std::max<std::int64_t>(vocabulary_size, 1);
    return std::clamp<std::int64_t>(rows / 64 * 64, 128, 4096);
}

}  // namespace distilld::models
