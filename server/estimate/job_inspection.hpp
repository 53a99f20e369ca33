#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/job_spec.hpp"
#include "api/kinds/violation.hpp"
#include "models/families/model_family.hpp"

namespace distilld {

/// Maximum bytes of data to read, in blocks of lines.
inline constexpr std::uint64_t kMaxInspectedData = std::uint64_t{4} << 20;

/// Result of inspecting a job.
struct JobInspection {
    std::vector<api::Violation> violations;
    std::vector<std::string> not_checked;        ///< unchecked things, each in a few words
    std::optional<models::ModelConfig> student;  ///< of a training job
    std::optional<std::uint64_t> rows;           ///< of the training data, if all of it was read
};

/// Checks what a run finds in its first second, with the run's code: the student's config, its tokenizer, the lengths,
/// the beginning of the data, its output folders and its teacher's protocol. The spec must be valid with absolute paths
/// to existing files (check_named_files()). Sends nothing, writes nothing, reads no weights. Blocks for at most some
/// seconds.
[[nodiscard]] JobInspection inspect_job(const JobSpec& spec);

}  // namespace distilld
