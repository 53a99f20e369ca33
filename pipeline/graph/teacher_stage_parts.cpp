#include "pipeline/graph/teacher_stage_parts.hpp"

#include <string>

namespace distilld {

SchedulerOptions scheduler_options(const TeacherStageOptions& options, const TeacherSource* source) {
    SchedulerOptions scheduler = options.scheduler;
    // Without a teacher nothing can be late, and a batch that is planned twice is work done twice.
    scheduler.hedge.enabled = scheduler.hedge.enabled && source != nullptr;
    return scheduler;
}

TeacherWatchOptions watch_options(const TeacherStageOptions& options, const TeacherSource* source) {
    TeacherWatchOptions watch = options.watch;
    watch.max_hold = options.scheduler.breaker.max_hold;
    watch.deadline = options.deadline;
    if (source != nullptr && options.names_silence) {
        const std::uint32_t more = options.scheduler.endpoints - 1;
        watch.asked = source->endpoint_name(0) + (more == 0 ? "" : " and " + std::to_string(more) + " more");
    }
    return watch;
}

}  // namespace distilld
