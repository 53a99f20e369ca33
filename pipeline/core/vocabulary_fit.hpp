#pragma once

#include <cstdint>

#include "base/error.hpp"
#include "pipeline/core/micro_batch.hpp"
#include "pipeline/core/teacher_head.hpp"

/// What a teacher says over its own vocabulary, for a student with another number of ids. Vocabularies are padded, to
/// different sizes within one family, so the ids that only one of the two has are ones that no text has.
namespace distilld {

/// How many ids a vocabulary of this size may have beside it that go for padding where nothing shows that they are.
[[nodiscard]] constexpr std::uint64_t max_padding(std::uint64_t vocabulary) noexcept {
    return vocabulary / 32;
}

/// The teacher's distribution of each row, given that the next token is one of the student's `vocabulary` ids:
///
/// - Logits are cut to these ids: the softmax of those that are left is that distribution.
/// - Of a top-k row, with entries p_i and the tail t (1 − Σp where it is not told), the entries of other ids are
///   dropped, and what is left is divided by its mass m = Σ' p_i + t: p_i / m and t / m. Each place that is free now
///   names the highest id that the row does not name and takes an even share of the tail, as the loss spreads it at
///   other temperatures (models/losses/topk_targets.hpp): with n entries left of k, t / m / (V − n). So the k entries
///   and the tail add up to 1. Padding that is not among the k stays in the tail. A row without such entries keeps its
///   bits.
/// - Where the teacher has fewer ids, its logits are filled up with −inf: probability 0. Top-k rows stay as they are.
/// - Hidden states are for the head, see fit_head().
///
/// Values of top-k rows become fp32 when anything was dropped. The error says which row leaves nothing. Any thread.
[[nodiscard]] Result<TeacherTargets> fit_vocabulary(TeacherTargets targets, std::uint32_t vocabulary);

/// The head with no more rows than the student has ids; a view of the same values.
[[nodiscard]] TeacherHead fit_head(TeacherHead head, std::uint32_t vocabulary);

}  // namespace distilld
