#pragma once

#include <cstdint>
#include <string_view>

#include "base/error.hpp"
#include "models/network/causal_lm.hpp"
#include "pipeline/core/job_spec.hpp"

namespace distilld::models {

/// Refuses a network whose weights, gradients and optimizer state alone take more than `max_bytes` (0 = no bound); the
/// error begins with `field`. The network may be declared only, which takes no memory.
Result<void> check_training_memory(const CausalLm& network, const TrainingSpec& training, std::string_view field,
                                   std::uint64_t max_bytes);

}  // namespace distilld::models
