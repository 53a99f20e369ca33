#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "pipeline/core/micro_batch.hpp"

/// What the answer to the probe's few tokens shows, beyond its shape.
namespace distilld {

/// What is wrong with the probabilities of top-k rows, if anything: they add up to 1, within 2 % for half precision,
/// and name each token once. The tokens that they do not name share the tail, or what is left to 1 where there is none,
/// and none of those is more probable than the last that is named. `vocabulary` is the student's; 0 = not known.
[[nodiscard]] std::optional<std::string> normalisation_defect(const TeacherTargets& targets, std::uint32_t vocabulary);

/// What is wrong when top-k rows name fewer tokens than the `top_k` wanted, or than the vocabulary has.
[[nodiscard]] std::optional<std::string> width_defect(const TeacherTargets& targets, std::uint32_t top_k,
                                                      std::uint32_t vocabulary);

/// Whether rows that came as fp32 look as if the logits behind them had been bf16 or fp16: the differences within a
/// row, which are those of the logits, then all lie on a grid of 2⁻¹⁰, as those of logits above 1 do. False where there
/// is too little to tell.
[[nodiscard]] bool looks_like_half_precision(const TeacherTargets& targets);

}  // namespace distilld
