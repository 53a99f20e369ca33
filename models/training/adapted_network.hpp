#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <span>

#include "base/error.hpp"
#include "models/network/causal_lm.hpp"
#include "pipeline/core/job_spec.hpp"

namespace distilld::models {

/// The network that a spec with student.lora describes: the weights of the base once, frozen, in the compute dtype, and
/// adapters beside them: new ones of training.seed, or those of student.model where that is a PEFT folder, whose base
/// adapter_config.json names and with whose r, alpha and target_modules the spec has to agree. What takes more than
/// `max_bytes` (0 = no bound) is refused before any is allocated. Errors name the spec's field or the file.
Result<std::unique_ptr<CausalLm>> make_adapted_network(const StudentSpec& spec, const TrainingSpec& training,
                                                       const torch::Device& device,
                                                       std::span<const ModelFamily> families, std::uint64_t max_bytes);

}  // namespace distilld::models
