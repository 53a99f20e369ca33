#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/job_spec.hpp"
#include "base/saturating.hpp"
#include "models/families/model_family.hpp"

namespace distilld {

/// Peak memory of a job, in bytes: of all ranks that training.ranks starts.
struct MemoryEstimate {
    std::uint64_t weights = 0;  ///< masters, and copies in the dtype of the arithmetic
    std::uint64_t gradients = 0;
    std::uint64_t optimizer = 0;        ///< moments
    std::uint64_t activations = 0;      ///< of the micro-batches that train at once, including the loss
    std::uint64_t teacher_buffers = 0;  ///< waiting answers; weights of a teacher in the process
    std::uint64_t runtime = 0;          ///< the program and libtorch

    /// Saturates, like each summand.
    [[nodiscard]] std::uint64_t total() const {
        std::uint64_t sum = weights;
        for (const std::uint64_t part : {gradients, optimizer, activations, teacher_buffers, runtime}) {
            sum = saturating_sum(sum, part);
        }
        return sum;
    }
};

/// An estimate of a job before it runs. Unknown values are nullopt, and a note says why.
struct RunEstimate {
    std::optional<std::uint64_t> steps;
    std::optional<std::uint64_t> tokens;  ///< input positions, padding included
    std::optional<std::uint64_t> parameters;
    std::optional<std::uint64_t> trainable_parameters;
    std::optional<MemoryEstimate> memory;
    std::optional<double> seconds;  ///< of training
    std::string based_on;           ///< runs that `seconds` comes from; empty = none
    std::vector<std::string> notes;
};

/// Known facts about a job besides its spec.
struct EstimateInputs {
    std::optional<models::ModelConfig> student;
    std::optional<models::ModelConfig> local_teacher;  ///< of teacher.model_dir
    std::optional<std::uint64_t> rows;                 ///< of the training data
    bool bf16 = false;                                 ///< the dtype if the spec leaves it open
    std::uint32_t cores = 1;                           ///< number of threads if the spec leaves it open
};

/// All but `seconds`. Pure.
[[nodiscard]] RunEstimate estimate_run(const JobSpec& spec, const EstimateInputs& inputs);

/// {"steps": …, "memory_bytes": {…, "total": …}, …}; unknown values are null.
[[nodiscard]] boost::json::object to_json_object(const RunEstimate& estimate);

}  // namespace distilld
