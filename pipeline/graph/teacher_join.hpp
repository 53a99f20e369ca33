#pragma once

#include <optional>
#include <vector>

#include "base/error.hpp"
#include "pipeline/core/micro_batch.hpp"
#include "pipeline/graph/batch_source.hpp"

namespace distilld {

/// The targets of a micro-batch from those of its parts (PlannedBatch::parts), nothing for a part without rows. Rows
/// are copied as they are; floats of different types become f32, which is exact, and where only some of the parts know
/// the mass outside their k, that of the others is kUnknownTail. All must be of one kind and width, and at least one
/// part has rows. The result depends on nothing but its arguments. Any thread.
[[nodiscard]] Result<TeacherTargets> join_teachers(const PlannedBatch& planned,
                                                   std::vector<std::optional<TeacherTargets>> parts);

}  // namespace distilld
