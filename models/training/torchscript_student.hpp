#pragma once

#include <memory>

#include "base/error.hpp"
#include "pipeline/core/spec_sections.hpp"
#include "pipeline/graph/student.hpp"

namespace distilld::models {

/// The network of a TorchScript file (student.format torchscript), trained on samples with the terms of
/// training.losses. The parameters that the file marks as requires_grad are trained; masters are fp32, or fp64. Forward
/// and backward run in student.dtype, losses in the masters' dtype. A step's loss is the mean over its samples,
/// whatever its micro-batches are; their gradients are added in their order. An evaluation puts the module into its
/// evaluation mode. If forward() draws random numbers, training.seed and the micro-batch's number determine them.
///
/// The exported model is model.pt, the file's module with the trained weights, and model.safetensors with the
/// parameters under their names, both in the file's dtypes. Errors name the spec's field. Torch-free header.
Result<std::unique_ptr<Student>> make_torchscript_student(const StudentSpec& student, const TrainingSpec& training);

}  // namespace distilld::models
