#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "base/error.hpp"
#include "models/serving/teacher_scorer.hpp"
#include "pipeline/core/spec_sections.hpp"

namespace distilld::models {

struct TeacherEngineOptions {
    Dtype dtype = Dtype::auto_select;
    std::uint32_t threads = 0;    ///< for a forward pass on the CPU; 0 = as many as libtorch has
    std::string device = "auto";  ///< as /student/device; "auto" is the first CUDA device if there is one, else the CPU
    TeacherPlacement placement = TeacherPlacement::rank0;  ///< rank0, duplicated: on `device`; others choose theirs
    bool with_head = true;                                 ///< hidden states may be requested
    GeneratorLimits generation{};                          ///< of generator(), which a model on one device has
};

/// Loads a model folder and sets libtorch's number of threads. With OpenMP that number applies to the calling thread
/// and to threads that first compute later, so call this on the thread that will call score(). Weights are converted to
/// the compute dtype tensor by tensor as they are read: peak memory is the model plus one of its tensors. With
/// placement `shared` nothing is read: the weights are the pages of the files, which must hold them in the compute
/// dtype. Errors name the file, or /teacher/placement.
///
/// score() makes one forward pass per request: matrix products may change a row's bits with the number of rows, so
/// requests are never stacked (docs/decisions/0003-batch-invariant-teacher.md). Logits are computed and reduced in
/// chunks of positions; no [positions, V] tensor exists except an answer of logits.
Result<std::unique_ptr<TeacherScorer>> load_teacher_engine(const std::filesystem::path& folder,
                                                           const TeacherEngineOptions& options);
/// On the device that "auto" selects.
Result<std::unique_ptr<TeacherScorer>> load_teacher_engine(const std::filesystem::path& folder, Dtype dtype,
                                                           std::uint32_t threads);

}  // namespace distilld::models
