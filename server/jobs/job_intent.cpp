#include "server/jobs/job_table.hpp"

namespace distilld {

const char* to_string(JobIntent intent) noexcept {
    switch (intent) {
        case JobIntent::wait:
            return "wait";
        case JobIntent::run:
            return "run";
        case JobIntent::pause:
            return "pause";
        case JobIntent::pause_by_force:
            return "pause_by_force";
        case JobIntent::paused:
            return "paused";
        case JobIntent::resume:
            return "resume";
        case JobIntent::resume_by_force:
            return "resume_by_force";
        case JobIntent::cancel:
            return "cancel";
        case JobIntent::cancel_by_force:
            return "cancel_by_force";
        case JobIntent::requeue:
            return "requeue";
        case JobIntent::requeue_by_force:
            return "requeue_by_force";
    }
    return "unknown";
}

}  // namespace distilld
