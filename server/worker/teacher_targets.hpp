#pragma once

#include "pipeline/core/choice_of_targets.hpp"
#include "pipeline/core/job_spec.hpp"

namespace distilld {

/// Whether the teacher's answers may turn out to be hidden states.
[[nodiscard]] inline bool may_send_hidden_states(const JobSpec& spec) {
    if (!spec.teacher) {
        return false;
    }
    if (!spec.teacher->store.empty() && spec.teacher->cache != TeacherCache::off) {
        return false;  // a store keeps none
    }
    const TargetsChoice targets = spec.teacher->targets;
    return targets == TargetsChoice::hidden || (targets == TargetsChoice::automatic && spec.teacher->top_k == 0);
}

/// Whether the teacher takes memory beside the student: as a model in the process, or with the head that goes with
/// hidden states.
[[nodiscard]] inline bool takes_memory_beside(const JobSpec& spec) {
    return may_send_hidden_states(spec) || (spec.teacher && !spec.teacher->model_dir.empty());
}

}  // namespace distilld
