#pragma once

#include <torch/torch.h>

#include "models/network/compute_dtype.hpp"
#include "pipeline/core/teacher_head.hpp"

namespace distilld::models {

/// A teacher's head [V, H] on the device: in bf16 where it came so and the student computes in bf16 (the teacher then
/// multiplies in bf16 too), in f64 for a student in f64, else in fp32. Compute thread.
torch::Tensor teacher_head_tensor(const TeacherHead& head, ComputeDtype student, const torch::Device& device);

}  // namespace distilld::models
