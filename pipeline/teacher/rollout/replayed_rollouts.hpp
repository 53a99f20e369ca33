#pragma once

#include <memory>

#include "pipeline/teacher/rollout/kept_rollouts.hpp"
#include "pipeline/teacher/teacher_source.hpp"

namespace distilld {

/// Answers that an earlier run has kept, in place of servers that write them. `vocabulary`: the student's. Any
/// executor.
[[nodiscard]] std::unique_ptr<TeacherSource> replayed_rollouts(std::shared_ptr<const KeptRollouts> kept,
                                                               std::string name, std::uint32_t max_tokens,
                                                               std::uint32_t vocabulary);

}  // namespace distilld
