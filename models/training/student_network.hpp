#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <span>

#include "base/error.hpp"
#include "models/network/causal_lm.hpp"
#include "pipeline/core/spec_sections.hpp"

namespace distilld::models {

/// The network that a spec's `student` describes: random weights of training.seed, or the folder's weights. In either
/// case student.config overrides the folder's config.json. A network that needs more than `max_bytes` (0 = no bound)
/// for weights, gradients and the state of training.optimizer is refused before memory is allocated. Errors name the
/// spec's field or the file.
Result<std::unique_ptr<CausalLm>> make_student_network(const StudentSpec& spec, const TrainingSpec& training,
                                                       const torch::Device& device,
                                                       std::span<const ModelFamily> families = model_families(),
                                                       std::uint64_t max_bytes = 0);

}  // namespace distilld::models
