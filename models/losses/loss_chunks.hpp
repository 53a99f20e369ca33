#pragma once

#include <algorithm>
#include <cstdint>

namespace distilld::models {

/// Rows of logits that the loss holds at once. Depends on the vocabulary and the kind of device only, so that sums have
/// one order. On a CPU, they take about 256 MiB in fp32; on a GPU four times as much, because each chunk passes over
/// the whole gradient of the head. Needs no libtorch, so that estimates use it too.
[[nodiscard]] constexpr std::int64_t loss_chunk_rows(std::int64_t vocabulary_size, bool on_cpu) noexcept {
    const std::int64_t elements = std::int64_t{1} << (on_cpu ? 26 : 28);
    const std::int64_t rows = elements / std::max<std::int64_t>(vocabulary_size, 1);
    return std::clamp<std::int64_t>(rows / 64 * 64, 128, 4096);
}

}  // namespace distilld::models
