#pragma once

#include <cstdint>

#include "pipeline/core/job_spec.hpp"

namespace distilld {

/// Learning rate of optimizer step `step` (0-based) of `total_steps`, as transformers' get_*_schedule(_with_warmup):
/// linear warm-up from 0 over `warmup_steps` (factor step / warmup_steps), then constant, linear to 0 at
/// `total_steps`, or half a cosine to 0.
[[nodiscard]] double learning_rate_at(LrScheduler scheduler, double peak, std::uint64_t warmup_steps,
                                      std::uint64_t total_steps, std::uint64_t step) noexcept;

}  // namespace distilld
