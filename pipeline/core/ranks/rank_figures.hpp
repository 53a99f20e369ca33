#pragma once

#include <cstddef>
#include <string>

#include "base/error.hpp"
#include "pipeline/core/stage.hpp"
#include "pipeline/core/worker_events.hpp"

namespace distilld {

/// Bytes of a rank's figures on their way to the others.
inline constexpr std::size_t kRankFiguresSize = 64 + 8 * (3 + kStageNames.size());

/// The host's first 63 bytes, tokens, waits, and the busy time of each stage. The others are for the reader to know.
[[nodiscard]] std::string write_rank_figures(const RankCounters& figures);

/// Figures of another rank, which may say anything: a name with other bytes than a host's has "?" there, and a time
/// that is not finite or below 0 is 0. An error if the size is another.
[[nodiscard]] Result<RankCounters> read_rank_figures(const std::string& bytes);

}  // namespace distilld
