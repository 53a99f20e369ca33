#include "server/jobs/metrics/foreground_metrics.hpp"

#include <utility>

namespace distilld {

ForegroundMetrics::ForegroundMetrics(std::shared_ptr<JobMetrics> metrics, std::uint32_t sequence_length)
    : metrics_(std::move(metrics)), sequence_length_(sequence_length) {
    metrics_->update([](ServiceCounts& counts) {
        counts.jobs = {{api::JobState::running, 1}};
        counts.slots = {{"busy", 1}, {"free", 0}};
    });
    metrics_->run_started(kForegroundJob);
}

void ForegroundMetrics::count(const WorkerEvent& event) {
    if (const auto* started = std::get_if<StartedEvent>(&event)) {
        if (const auto before = std::exchange(started_, started->batch_size)) {
            const bool smaller = started->batch_size < *before;  // only a lack of memory makes it smaller
            metrics_->update([smaller](ServiceCounts& counts) {
                ++(smaller ? counts.worker_oom_restarts : counts.worker_restarts);
            });
            metrics_->run_started(kForegroundJob);
        }
    }
    if (const auto* waiting = std::get_if<WaitingEvent>(&event)) {
        metrics_->update([waiting](ServiceCounts& counts) {
            counts.waiting.clear();
            if (!waiting->code.empty()) {
                counts.waiting[waiting->code] = 1;
            }
        });
    }
    count_event(*metrics_, kForegroundJob, sequence_length_, event);
}

}  // namespace distilld
