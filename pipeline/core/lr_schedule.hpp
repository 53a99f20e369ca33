#pragma once

#include <cstdint>
#include <string>

#include "pipeline/core/spec_sections.hpp"

namespace distilld {

/// Learning rate of optimizer step `step` (0-based) of `total_steps`, like transformers' get_*_schedule(_with_warmup):
/// linear warm-up from 0 over `warmup_steps` (factor step / warmup_steps), then constant, linear to 0 at `total_steps`,
/// or half a cosine to 0.
[[nodiscard]] double learning_rate_at(LrScheduler scheduler, double peak, std::uint64_t warmup_steps,
                                      std::uint64_t total_steps, std::uint64_t step) noexcept;

/// Steps of the warm-up: warmup_steps or, if that is 0, the share warmup_ratio of all steps, rounded up as in
/// transformers, but never all steps.
[[nodiscard]] std::uint64_t warmup_steps_of(const TrainingSpec& training, std::uint64_t total_steps) noexcept;

/// Returns why a run of `total_steps` changes no weight or never reaches its learning rate, and names the field. Empty
/// if there is no such problem.
[[nodiscard]] std::string why_nothing_is_learnt(const TrainingSpec& training, std::uint64_t total_steps);

}  // namespace distilld
