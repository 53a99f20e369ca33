#pragma once

#include "pipeline/core/prefetch_scheduler.hpp"
#include "pipeline/graph/teacher_stage.hpp"
#include "pipeline/graph/teacher_watch.hpp"
#include "pipeline/teacher/teacher_source.hpp"

/// What the teacher stage makes of its options.
namespace distilld {

[[nodiscard]] SchedulerOptions scheduler_options(const TeacherStageOptions& options, const TeacherSource* source);
[[nodiscard]] TeacherWatchOptions watch_options(const TeacherStageOptions& options, const TeacherSource* source);

}  // namespace distilld
