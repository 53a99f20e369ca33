#pragma once

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

}  // namespace distilld
