#pragma once

#include <cstdint>
#include <span>

#include "base/error.hpp"
#include "models/families/model_family.hpp"
#include "pipeline/core/spec_sections.hpp"

namespace distilld::models {

/// The student's config.json: its folder's (or its base's for a PEFT folder without one), overridden by the spec. The
/// spec cannot change the sizes of pretrained weights. Reads files.
Result<ModelConfig> read_student_config(const StudentSpec& student,
                                        std::span<const ModelFamily> families = model_families());

/// Rows longer than the network's positions are an error that names /dataset/sequence_length.
Result<void> check_positions(std::uint32_t sequence_length, std::int64_t max_positions);

}  // namespace distilld::models
