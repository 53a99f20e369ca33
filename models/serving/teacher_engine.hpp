#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "base/error.hpp"
#include "models/serving/teacher_scorer.hpp"
#include "pipeline/core/job_spec.hpp"

namespace distilld::models {

/// Loads a model folder and sets libtorch's number of threads (0 = as many as it finds), so call it on the thread
/// that will call score(), before any other tensor operation of the process. Runs on the first CUDA device when
/// libtorch finds one, else on the CPU. Weights are converted to the compute dtype tensor by tensor as they are read:
/// the peak is the model and one of its tensors. Errors name the file.
///
/// score() makes one forward pass a request: matrix products may change a row's bits with the number of rows, so
/// requests are never stacked (docs/decisions/0003-batch-invariant-teacher.md). Logits are made and reduced in chunks
/// of positions; but for the answer itself no [positions, V] tensor exists.
Result<std::unique_ptr<TeacherScorer>> load_teacher_engine(const std::filesystem::path& folder, Dtype dtype,
                                                           std::uint32_t threads);

}  // namespace distilld::models
