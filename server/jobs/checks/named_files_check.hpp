#pragma once

#include "api/job_spec.hpp"
#include "api/job_spec_json.hpp"
#include "base/files/file_rule.hpp"

namespace distilld {

enum class LookInside { no, yes };

/// All paths that the spec names and that do not exist (api::missing_paths()). Dry runs also get the defects of the
/// student's folder (check_model_folder()); submissions do not, because an earlier job may still be writing it.
/// Relative paths start at the working folder. A path that `rule` does not allow is one more violation (no rule: all
/// are allowed). Blocks.
[[nodiscard]] api::SpecViolations check_named_files(const JobSpec& spec, LookInside look_inside,
                                                    const FileRule* rule = nullptr);

}  // namespace distilld
