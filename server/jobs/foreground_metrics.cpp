#include "server/jobs/foreground_metrics.hpp"

#include <map>
#include <string>
#include <utility>

namespace distilld {

ForegroundMetrics::ForegroundMetrics(std::shared_ptr<JobMetrics> metrics, std::uint32_t sequence_length)
    : metrics_(std::move(metrics)), sequence_length_(sequence_length) {
    metrics_->set_job_counts({{api::JobState::running, 1}});
    metrics_->set_slots(1, 0);
    metrics_->run_started(kForegroundJob);
}

void ForegroundMetrics::count(const WorkerEvent& event) {
    if (const auto* started = std::get_if<StartedEvent>(&event)) {
        const auto before = std::exchange(started_, started->batch_size);
        if (before && started->batch_size < *before) {
            metrics_->worker_oom_restarted();  // nothing else makes micro-batches smaller
        } else if (before) {
            metrics_->worker_restarted();
        }
        if (before) {
            metrics_->run_started(kForegroundJob);
        }
    }
    if (const auto* waiting = std::get_if<WaitingEvent>(&event)) {
        std::map<std::string, std::uint64_t> reasons;
        if (!waiting->code.empty()) {
            reasons[waiting->code] = 1;
        }
        metrics_->set_jobs_waiting(reasons);
    }
    count_event(*metrics_, kForegroundJob, sequence_length_, event);
}

}  // namespace distilld
