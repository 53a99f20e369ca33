#pragma once

#include <optional>
#include <vector>

#include "base/error.hpp"
#include "pipeline/core/micro_batch.hpp"
#include "pipeline/graph/batch_source.hpp"

namespace distilld {

/// Joins the targets of a micro-batch from those of its parts (PlannedBatch::parts); a part without rows has none. Rows
/// are copied unchanged. Floats of different types become f32, which is exact. If only some parts know the mass outside
/// their k, it is kUnknownTail for the others. All must have the same kind and width, and at least one part has rows. A
/// pure function. Any thread.
[[nodiscard]] Result<TeacherTargets> join_teachers(const PlannedBatch& planned,
                                                   std::vector<std::optional<TeacherTargets>> parts);

}  // namespace distilld
