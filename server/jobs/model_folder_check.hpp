#pragma once

#include "api/job_spec_json.hpp"
#include "base/file_rule.hpp"
#include "pipeline/core/job_spec.hpp"

namespace distilld {

/// What is wrong with the student's model folder, as far as that can be told without reading weights: it is there, its
/// config.json is a JSON object, its weights are there when they are wanted (a generate job wants none), and its
/// tokenizer.json can be opened. For dry runs: a job that waits may name a folder that another one is still
/// writing. Reads config.json only; blocks. A file that `rule`
/// does not let be opened is path_not_allowed.
[[nodiscard]] api::SpecViolations check_model_folder(const StudentSpec& student, JobKind kind = JobKind::train,
                                                     const FileRule* rule = nullptr);

}  // namespace distilld
