#include "models/serving/local_engine.hpp"

#include <algorithm>
#include <utility>

#include "base/cores.hpp"
#include "models/network/compute_thread_scope.hpp"
#include "models/serving/teacher_engine.hpp"

namespace distilld::models {

std::uint32_t local_threads_for(std::uint32_t wanted, std::uint32_t cores) noexcept {
    return wanted > 0 ? wanted : std::max(1U, cores / 2);
}

LoadTeacherModel local_model_loader(std::string student_device) {
    return [device = std::move(student_device)](const TeacherSpec& spec, bool with_head) {
        const ComputeThreadScope student_keeps_its_threads;
        TeacherEngineOptions options;
        options.dtype = spec.dtype;
        options.threads = local_threads_for(spec.threads, core_count());
        options.device = device;
        options.placement = spec.placement;
        options.with_head = with_head;
        return load_teacher_engine(spec.model_dir, options);
    };
}

}  // namespace distilld::models
