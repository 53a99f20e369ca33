#include "server/jobs/foreground_metrics.hpp"

#include <map>
#include <string>
#include <utility>

namespace distilld {

ForegroundMetrics::ForegroundMetrics(std::shared_ptr<JobMetrics> metrics, std::uint32_t sequence_length)
    : metrics_(std::move(metrics)), sequence_length_(sequence_length) {
    metrics_->set_job_counts({{api::JobState::running, 1}});
    metrics_->run_started(kForegroundJob);
}

void ForegroundMetrics::count(const WorkerEvent& event) {
    if (std::holds_alternative<StartedEvent>(event) && std::exchange(started_, true)) {
        metrics_->worker_restarted();
        metrics_->run_started(kForegroundJob);
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
