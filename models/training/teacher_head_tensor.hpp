#pragma once

#include <torch/types.h>

#include "models/network/compute_dtype.hpp"
#include "pipeline/core/micro_batch.hpp"
#include "pipeline/core/teacher_head.hpp"

namespace distilld::models {

/// Torch's type for a float array from a teacher.
[[nodiscard]] inline torch::ScalarType float_type(ElementType type) noexcept {
    switch (type) {
        case ElementType::f16:
            return torch::kHalf;
        case ElementType::bf16:
            return torch::kBFloat16;
        default:
            return torch::kFloat;
    }
}

/// A teacher's head [V, H] on the device: in f64 for a student in f64, in bf16 if both the head and the student's
/// arithmetic are bf16 (the teacher then multiplies in bf16 too), else in fp32. Compute thread.
torch::Tensor teacher_head_tensor(const TeacherHead& head, ComputeDtype student, const torch::Device& device);

}  // namespace distilld::models
