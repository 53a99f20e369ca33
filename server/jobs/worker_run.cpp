#include "server/jobs/worker_run.hpp"

#include <utility>
#include <variant>

namespace distilld {

WorkerRun::WorkerRun(std::string job_id, std::uint32_t sequence_length, std::chrono::milliseconds metrics_interval,
                     JobJournal& journal, JobMetrics& metrics)
    : id_(std::move(job_id)),
      sequence_length_(sequence_length),
      metrics_interval_(metrics_interval),
      journal_(journal),
      metrics_(metrics) {}

void WorkerRun::handle(const WorkerEvent& event, Time now) {
    std::visit([&](const auto& it) { on(it, now); }, event);
}

void WorkerRun::on(const StartedEvent& event, Time) {
    metrics_.run_details(id_, event.first_step, std::uint64_t{event.batch_size} * sequence_length_);
    journal_.append(id_, record_of(event));
}

void WorkerRun::on(const ProgressEvent& event, Time now) {
    journal_.set_progress(id_, event);
    metrics_.progress(id_, event);
    if (last_metrics_ && now - *last_metrics_ < metrics_interval_) {
        return;
    }
    last_metrics_ = now;
    last_metrics_step_ = event.step;
    journal_.append(id_, record_of(event));
}

void WorkerRun::on(const EvaluationEvent& event, Time) {
    journal_.set_eval_loss(id_, event.loss);
    journal_.append(id_, record_of(event));
}

void WorkerRun::on(const CheckpointEvent& event, Time) {
    journal_.add_checkpoint(id_, {event.step, event.folder, event.seconds, now_text()});
    journal_.append(id_, record_of(event));
}

void WorkerRun::on(const WaitingEvent& event, Time) {
    auto& reason = journal_.edit(id_).job.status_reason;
    reason.reset();
    if (!event.code.empty()) {
        const std::chrono::duration<double> since(event.since);
        const auto began = std::chrono::duration_cast<std::chrono::system_clock::duration>(since);
        reason = {event.code, event.message, api::rfc3339(std::chrono::system_clock::time_point(began))};
    }
    journal_.append(id_, record_of(event));
}

void WorkerRun::on(const FinishedEvent& event, Time) {
    journal_.set_progress(id_, event.last);
    if (event.eval_loss) {
        journal_.set_eval_loss(id_, *event.eval_loss);
    }
    // Thinning must not swallow the last step.
    if (last_metrics_step_ != event.last.step) {
        journal_.append(id_, record_of(event.last));
    }
    metrics_.progress(id_, event.last);
    // It goes to the disk with the state that follows.
    auto& job = journal_.edit(id_).job;
    job.weights_sha256 = event.weights_sha256;
    job.exported_eval_loss = event.exported_eval_loss;
    outcome_ = {WorkerOutcome::Kind::finished, false, {}};
}

void WorkerRun::on(const CancelledEvent& event, Time) {
    outcome_ = {WorkerOutcome::Kind::cancelled, !event.checkpoint.empty(), {}};
}

void WorkerRun::on(const FailedEvent& event, Time) {
    outcome_ = {WorkerOutcome::Kind::failed, false, {event.kind, event.message}};
}

}  // namespace distilld
