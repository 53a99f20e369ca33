#pragma once

#include "api/job_spec.hpp"
#include "pipeline/core/choice_of_targets.hpp"

namespace distilld {

/// Whether the teacher may answer with hidden states.
[[nodiscard]] inline bool may_send_hidden_states(const JobSpec& spec) {
    const TeacherSpec* teacher = spec.teacher();
    if (teacher == nullptr) {
        return false;  // or several: the student holds only one teacher's head
    }
    if (uses_store(*teacher)) {
        return false;  // a store cannot keep them
    }
    const TargetsChoice targets = teacher->targets;
    return targets == TargetsChoice::hidden || (targets == TargetsChoice::automatic && teacher->top_k == 0);
}

/// Whether the teacher takes memory besides the student: as a model in the process, or as the head for hidden states.
[[nodiscard]] inline bool takes_memory_beside(const JobSpec& spec) {
    return may_send_hidden_states(spec) || (spec.teacher() != nullptr && !local_model_of(*spec.teacher()).empty());
}

}  // namespace distilld
