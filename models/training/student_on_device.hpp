#pragma once

#include <torch/types.h>

#include <memory>

#include "base/error.hpp"
#include "models/training/causal_lm_student.hpp"

namespace distilld::models {

/// make_causal_lm_student() on this device (any kind that libtorch knows); ignores options.student.device.
Result<std::unique_ptr<Student>> make_student_on(const torch::Device& device, const CausalLmStudentOptions& options);

}  // namespace distilld::models
