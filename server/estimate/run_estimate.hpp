#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/saturating.hpp"
#include "models/families/model_family.hpp"
#include "pipeline/core/job_spec.hpp"

namespace distilld {

/// Bytes that a worker needs at its peak.
struct MemoryEstimate {
    std::uint64_t weights = 0;  ///< masters, and copies in the type of the arithmetic
    std::uint64_t gradients = 0;
    std::uint64_t optimizer = 0;        ///< its moments
    std::uint64_t activations = 0;      ///< of one micro-batch, the loss included
    std::uint64_t teacher_buffers = 0;  ///< answers that wait; the weights of a teacher in the process
    std::uint64_t runtime = 0;          ///< the program and libtorch

    /// Saturates, as each of them does.
    [[nodiscard]] std::uint64_t total() const {
        std::uint64_t sum = weights;
        for (const std::uint64_t part : {gradients, optimizer, activations, teacher_buffers, runtime}) {
            sum = saturating_sum(sum, part);
        }
        return sum;
    }
};

/// What a job will come to, as far as that is known before it runs. What is not known is nothing, and a note says why.
struct RunEstimate {
    std::optional<std::uint64_t> steps;
    std::optional<std::uint64_t> tokens;  ///< input positions, padding included
    std::optional<std::uint64_t> parameters;
    std::optional<std::uint64_t> trainable_parameters;
    std::optional<MemoryEstimate> memory;
    std::optional<double> seconds;  ///< of training
    std::string based_on;           ///< which runs `seconds` is taken from; empty = none
    std::vector<std::string> notes;
};

/// What is known of a job beside its spec.
struct EstimateInputs {
    std::optional<models::ModelConfig> student;
    std::optional<models::ModelConfig> local_teacher;  ///< of teacher.model_dir
    std::optional<std::uint64_t> rows;                 ///< of the training data
    bool bf16 = false;                                 ///< the arithmetic, where the spec leaves it open
};

/// All but `seconds`. Pure.
[[nodiscard]] RunEstimate estimate_run(const JobSpec& spec, const EstimateInputs& inputs);

/// {"steps": …, "memory_bytes": {…, "total": …}, …}; what is not known is null.
[[nodiscard]] boost::json::object to_json_object(const RunEstimate& estimate);

}  // namespace distilld
