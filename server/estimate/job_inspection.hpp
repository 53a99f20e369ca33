#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/violation.hpp"
#include "models/families/model_family.hpp"
#include "pipeline/core/job_spec.hpp"

namespace distilld {

/// Of the data so much is read, in blocks of lines; where they have less, all.
inline constexpr std::uint64_t kMaxInspectedData = std::uint64_t{4} << 20;

/// What of a job can be told before it runs.
struct JobInspection {
    std::vector<api::Violation> violations;
    std::vector<std::string> not_checked;        ///< what may be wrong all the same, each in a few words
    std::optional<models::ModelConfig> student;  ///< of a training job
    std::optional<std::uint64_t> rows;           ///< of the training data, where all of it was read
};

/// Checks what a run finds out in its first second, by the code of the run: the student's config, its tokenizer, the
/// lengths, the beginning of the data, the folders that it writes to, and how its teacher is spoken to. The spec is
/// valid, its paths are absolute, and what it names is there (check_named_files()). Asks nobody, writes nothing, reads
/// no weights. Blocks, for some seconds at most.
[[nodiscard]] JobInspection inspect_job(const JobSpec& spec);

}  // namespace distilld
