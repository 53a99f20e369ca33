#pragma once

#include <cstdint>

#include "base/error.hpp"
#include "pipeline/core/micro_batch.hpp"
#include "pipeline/core/teacher_head.hpp"

/// Fits a teacher's answers to a student with another number of ids. Vocabularies of one family are padded to different
/// sizes, so ids that only one of the two has occur in no text.
namespace distilld {

/// How many more ids than this vocabulary still count as padding, if tokenizers cannot be compared.
[[nodiscard]] constexpr std::uint64_t max_padding(std::uint64_t vocabulary) noexcept {
    return vocabulary / 32;
}

/// The teacher's distribution of each row, given that the next token is one of the student's `vocabulary` ids:
///
/// - Logits are cut to these ids: the softmax of the remaining logits is that distribution.
/// - In a top-k row with entries p_i and tail t (1 − Σp if unknown), entries of other ids are dropped, and the rest is
///   divided by its mass m = Σ' p_i + t: p_i / m and t / m. Each free place then names the highest id that the row does
///   not name, with an even share of the tail, as the loss spreads it at other temperatures
///   (models/losses/topk_targets.hpp): with n entries left of k, t / m / (V − n). So the k entries and the tail add up
///   to 1. Padding that is not among the k stays in the tail. A row without such entries keeps its bits.
/// - If the teacher has fewer ids, its logits are padded with −inf: probability 0. Top-k rows stay as they are.
/// - Hidden states are for the head, see fit_head().
///
/// Values of top-k rows become fp32 if anything was dropped. The error names a row without anything left. Any thread.
[[nodiscard]] Result<TeacherTargets> fit_vocabulary(TeacherTargets targets, std::uint32_t vocabulary);

/// Cuts the head to the student's ids; a view of the same values.
[[nodiscard]] TeacherHead fit_head(TeacherHead head, std::uint32_t vocabulary);

}  // namespace distilld
