#pragma once

#include "pipeline/core/micro_batch.hpp"
#include "pipeline/core/targets_choice.hpp"

namespace distilld {

/// The name of the targets that yield rows of this kind.
[[nodiscard]] constexpr TargetsChoice choice_of(TeacherTargets::Kind kind) noexcept {
    switch (kind) {
        case TeacherTargets::Kind::topk:
            return TargetsChoice::topk;
        case TeacherTargets::Kind::logits:
            return TargetsChoice::logits;
        case TeacherTargets::Kind::hidden_states:
            return TargetsChoice::hidden;
        case TeacherTargets::Kind::tensors:
            break;
    }
    return TargetsChoice::automatic;
}

}  // namespace distilld
