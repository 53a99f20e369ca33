#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace distilld {

/// The stages of a training job's graph, in the order in which a micro-batch passes them; then the recorder's uses of
/// the student between steps.
enum class Stage { plan, rollout, teacher, decode, staging, student, optimizer, recorder, evaluation, snapshot };

/// Their names in status, metrics and traces, in the order of the enumerators.
inline constexpr std::array<std::string_view, 10> kStageNames = {
    "plan", "rollout", "teacher", "decode", "staging", "student", "optimizer", "recorder", "evaluation", "snapshot"};

[[nodiscard]] constexpr std::string_view stage_name(Stage stage) noexcept {
    return kStageNames[static_cast<std::size_t>(stage)];
}
static_assert(stage_name(Stage::snapshot) == "snapshot");

}  // namespace distilld
