#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "pipeline/core/spec_sections.hpp"

namespace distilld {

inline constexpr std::uint32_t kMaxRanks = 64;  ///< on one machine

/// A field of the spec that keeps ranks from training the job together.
struct RankConflict {
    const char* pointer;
    std::string why;
};

[[nodiscard]] std::optional<RankConflict> conflict_of_ranks(const StudentSpec& student, const TrainingSpec& training,
                                                            std::uint32_t ranks);

}  // namespace distilld
