#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "pipeline/core/micro_batch.hpp"

/// Whether the rows of an answer stand where they belong, told from what they depend on: the row of a position is made
/// from the tokens up to that position, and from no later one.
namespace distilld {

/// The column at which every second sequence of the probe's batches has another token. One column stands before it and
/// one after it has a row, so that a shift to either side is seen.
constexpr std::uint32_t kAlignmentColumn = 1;
constexpr std::uint32_t kAlignmentColumns = 4;
constexpr std::uint32_t kAlignmentRows = 2;

/// What is wrong with the rows of a batch whose first two sequences are the same but for the token at
/// kAlignmentColumn: the rows before it must be the same, the row at it must not. Rows that differ by little, as those
/// of a small random model do, tell nothing, nor do rows that no token changes. Any thread; linear in the width.
[[nodiscard]] std::optional<std::string> alignment_defect(const TeacherTargets& targets);

}  // namespace distilld
