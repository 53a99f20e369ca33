#pragma once

#include <optional>
#include <string>

#include "pipeline/core/micro_batch.hpp"

/// What the answer to the probe's few tokens shows, beyond its shape.
namespace distilld {

/// What is wrong with the probabilities of top-k rows, if anything: they add up to 1, within 2 % for half precision,
/// and name each token once. Rows without a tail may add up to less.
[[nodiscard]] std::optional<std::string> normalisation_defect(const TeacherTargets& targets);

/// Whether rows that came as fp32 look as if the logits behind them had been bf16 or fp16: the differences within a
/// row, which are those of the logits, then all lie on a grid of 2⁻¹⁰, as those of logits above 1 do. False where there
/// is too little to tell.
[[nodiscard]] bool looks_like_half_precision(const TeacherTargets& targets);

}  // namespace distilld
