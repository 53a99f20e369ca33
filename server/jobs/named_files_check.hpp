#pragma once

#include "api/job_spec_json.hpp"
#include "base/file_rule.hpp"
#include "pipeline/core/job_spec.hpp"

namespace distilld {

enum class LookInside { no, yes };

/// What the spec names and is not there (api::missing_paths()), all at once; and what is wrong with the student's
/// folder (check_model_folder()) when that is looked into, which a submission does not do: an earlier job may be
/// writing it. Relative paths start at the working folder. What `rule` (none:
/// everything is allowed) does not let be opened there is one more violation. Blocks.
[[nodiscard]] api::SpecViolations check_named_files(const JobSpec& spec, LookInside look_inside,
                                                    const FileRule* rule = nullptr);

}  // namespace distilld
