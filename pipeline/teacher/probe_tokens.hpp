#pragma once

#include <cstdint>
#include <memory>

#include "pipeline/core/micro_batch.hpp"

namespace distilld {

inline constexpr std::uint32_t kProbeColumns = 3;

/// What every teacher is asked first, so that fingerprints can be compared: sequences of tokens that every vocabulary
/// has: 1, 2, 0 and, in longer ones, more of those below 32; every second sequence has another one at kAlignmentColumn.
/// The last position has no label.
[[nodiscard]] std::shared_ptr<const TokenBatch> probe_tokens(std::uint32_t vocabulary, std::uint32_t rows,
                                                             std::uint32_t columns = kProbeColumns);

}  // namespace distilld
