#pragma once

#include <cstddef>
#include <string>

#include "pipeline/core/micro_batch.hpp"

namespace distilld {

/// What a teacher says of the probe's tokens, small enough to be kept with a checkpoint: of each position, the most
/// likely tokens with their log-probabilities, as JSON text. `targets` have been checked; hidden states, which name no
/// token, give "".
[[nodiscard]] std::string teacher_fingerprint(const TeacherTargets& targets);

/// Whether two fingerprints can be of one model. Another machine, another precision or another batch moves a
/// log-probability a little; another model moves it by more than that. True where either is empty or cannot be read.
[[nodiscard]] bool same_teacher(const std::string& a, const std::string& b);

/// How two answers to the same tokens differ, position by position. A position is unlike when fewer than half of its 8
/// most likely tokens are the same in both, or when the log-probabilities of one that is differ by more than 0.25; of
/// hidden states, when the difference is longer than a quarter of the longer one. Half precision and sums in another
/// order stay at hundredths of either.
struct AnswerDifference {
    std::size_t positions = 0;  ///< compared: at most 64, evenly spread
    std::size_t unlike = 0;
    double max_apart = 0;  ///< in nats, of tokens that both name; of hidden states, a part of their length

    /// Most positions are unlike: no rounding does that.
    [[nodiscard]] bool of_other_models() const noexcept { return 2 * unlike > positions; }
    /// How large it is, for people.
    [[nodiscard]] std::string text(TeacherTargets::Kind kind) const;
};

/// Of two answers of the same kind, width and shape. Any thread.
[[nodiscard]] AnswerDifference difference_of(const TeacherTargets& a, const TeacherTargets& b);

}  // namespace distilld
