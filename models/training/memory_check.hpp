#pragma once

#include <cstdint>
#include <string_view>

#include "base/error.hpp"
#include "models/network/causal_lm.hpp"
#include "pipeline/core/spec_sections.hpp"

namespace distilld::models {

/// Refuses a network that needs more than `max_bytes` (0 = no bound) for weights, gradients and optimizer state alone;
/// the error begins with `field`. The network may be only declared, which takes no memory.
Result<void> check_training_memory(const CausalLm& network, const TrainingSpec& training, std::string_view field,
                                   std::uint64_t max_bytes);

}  // namespace distilld::models
