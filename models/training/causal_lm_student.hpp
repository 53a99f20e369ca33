#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/error.hpp"
#include "models/families/model_family.hpp"
#include "pipeline/core/ranks/rank_exchange.hpp"
#include "pipeline/core/spec_sections.hpp"
#include "pipeline/graph/student.hpp"

namespace distilld::models {

struct CausalLmStudentOptions {
    StudentSpec student;
    TrainingSpec training;
    bool with_teacher = false;          ///< micro-batches carry targets and the loss uses them
    std::uint32_t sequence_length = 0;  ///< longest row; checked against max_position_embeddings. 0 = no check
    std::uint64_t max_bytes = 0;        ///< refuses a network that needs more for training; 0 = no limit
    std::span<const ModelFamily> families = model_families();
    std::function<void(const std::string&)> on_warning;  ///< may be empty; called before the student exists
    RankExchange* ranks = nullptr;                       ///< outlives the student; null: there is one rank
};

/// A student with training.optimizer on the device that student.device names. The caller sets the libtorch thread count
/// first. Errors name the spec's field or the file: no such folder, an invalid config, missing weights, sequence_length
/// beyond max_position_embeddings, an unavailable device, a network that does not fit in memory (before any is
/// allocated). Torch-free header.
///
/// Gradients: the loss of a micro-batch is its sum over target tokens divided by the target tokens of the whole step,
/// so the micro-batches' gradients add up to the gradient of the mean over the step. They are added in the order of the
/// train() calls, in fp32. In bf16 arithmetic, a micro-batch's gradient is a bf16 tensor before it is added (the head's
/// once per chunk of the loss): the sum differs from one large batch's by these roundings. A step with a loss or
/// gradient norm that is not finite is skipped: weights, moments and the optimizer's step count stay, as in a step
/// without targets.
Result<std::unique_ptr<Student>> make_causal_lm_student(const CausalLmStudentOptions& options);

}  // namespace distilld::models
