#pragma once

#include <cstdint>
#include <memory>

#include "pipeline/core/rollout_plan.hpp"
#include "pipeline/data/dataset.hpp"

namespace distilld {

/// The rows of `prompts`, of which each batch has `more` columns of padding behind its longest row: room for answers.
/// Prompts that the student does not answer (RolloutPlan::answers()) have no target.
[[nodiscard]] std::shared_ptr<const Dataset> with_room_for_answers(std::shared_ptr<const Dataset> prompts,
                                                                   std::uint32_t more, const RolloutPlan& plan);

}  // namespace distilld
