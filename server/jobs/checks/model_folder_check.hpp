#pragma once

#include "api/job_spec.hpp"
#include "api/job_spec_json.hpp"
#include "base/files/file_rule.hpp"

namespace distilld {

/// Defects of the student's model folder that show without reading weights: the folder must exist, its config.json must
/// be a JSON object, the weights must be there (except for a generate job), and tokenizer.json must open. For dry runs
/// only: a job that waits may name a folder that another job is still writing. Reads config.json only; blocks. A file
/// that `rule` does not allow is path_not_allowed.
[[nodiscard]] api::SpecViolations check_model_folder(const StudentSpec& student, JobKind kind = JobKind::train,
                                                     const FileRule* rule = nullptr);

}  // namespace distilld
