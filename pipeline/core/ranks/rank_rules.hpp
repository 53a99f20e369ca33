#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "pipeline/core/spec_sections.hpp"

namespace distilld {

inline constexpr std::uint32_t kMaxRanks = 64;  ///< on one machine

/// The part of a limit of the job that is one rank's: at least 1.
[[nodiscard]] constexpr std::uint32_t share_of(std::uint32_t limit, std::uint32_t ranks) {
    return std::max(1U, limit / std::max(1U, ranks));
}

/// Whether one rank of a machine computes with a teacher in the process for all of them. One with a store is not shared
/// so: the store may have all its answers.
[[nodiscard]] inline bool computes_for_all_ranks(const TeacherSpec& teacher) {
    return !uses_store(teacher) && teacher.placement != TeacherPlacement::shared &&
           teacher.placement != TeacherPlacement::duplicated;
}

/// A field of the spec that keeps ranks from training the job together.
struct RankConflict {
    const char* pointer;
    std::string why;
};

[[nodiscard]] std::optional<RankConflict> conflict_of_ranks(const StudentSpec& student, const TrainingSpec& training,
                                                            std::uint32_t ranks);

}  // namespace distilld
