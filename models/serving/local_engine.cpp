#include "models/serving/local_engine.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "base/cores.hpp"
#include "models/serving/teacher_engine.hpp"

namespace distilld::models {

std::uint32_t local_threads_for(std::uint32_t wanted, std::uint32_t cores) noexcept {
    return wanted > 0 ? wanted : std::max(1U, cores / 2);
}

LoadTeacherModel local_model_loader(std::string student_device) {
    return [device = std::move(student_device)](const TeacherSpec& spec, bool with_head) {
        // The query also sets this thread's number to the process's, as its first tensor operation would.
        const int of_process = at::get_num_threads();
        TeacherEngineOptions options;
        options.dtype = spec.dtype;
        options.threads = local_threads_for(spec.threads, core_count());
        options.device = device;
        options.placement = spec.placement;
        options.with_head = with_head;
        auto engine = load_teacher_engine(spec.model_dir, options);
        // The number set last also applies to threads that have not computed yet: the student's.
        std::thread([of_process] { at::set_num_threads(of_process); }).join();
        return engine;
    };
}

}  // namespace distilld::models
