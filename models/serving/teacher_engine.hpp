#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "base/error.hpp"
#include "models/serving/teacher_scorer.hpp"
#include "pipeline/core/job_spec.hpp"

namespace distilld::models {

struct TeacherEngineOptions {
    Dtype dtype = Dtype::auto_select;
    std::uint32_t threads = 0;    ///< of a forward pass on the CPU; 0 = as many as libtorch has
    std::string device = "auto";  ///< as /student/device; the first CUDA device where there is one, else the CPU
    TeacherPlacement placement = TeacherPlacement::rank0;  ///< rank0: on `device`; others have devices of their own
    bool with_head = true;                                 ///< hidden states will be asked for
};

/// Loads a model folder and sets libtorch's number of threads, which with OpenMP is the calling thread's and that of
/// threads which compute for the first time later. So call it on the thread that will call score(). Weights are
/// converted to the compute dtype tensor by tensor as they are read: the peak is the model and one of its tensors.
/// With placement `shared` nothing is read: the weights are the pages of the files, which have to hold them in the
/// compute dtype. Errors name the file, or /teacher/placement.
///
/// score() makes one forward pass a request: matrix products may change a row's bits with the number of rows, so
/// requests are never stacked (docs/decisions/0003-batch-invariant-teacher.md). Logits are made and reduced in chunks
/// of positions; but for the answer itself no [positions, V] tensor exists.
Result<std::unique_ptr<TeacherScorer>> load_teacher_engine(const std::filesystem::path& folder,
                                                           const TeacherEngineOptions& options);
/// On the device that is found.
Result<std::unique_ptr<TeacherScorer>> load_teacher_engine(const std::filesystem::path& folder, Dtype dtype,
                                                           std::uint32_t threads);

}  // namespace distilld::models
