#include "server/jobs/run_recorder.hpp"

#include <algorithm>
#include <utility>
#include <variant>

#include "server/supervisor/worker_process.hpp"

namespace distilld {

RunRecorder::RunRecorder(JobAttempt attempt, std::uint32_t sequence_length, std::chrono::milliseconds metrics_interval,
                         JobJournal& journal, JobMetrics& metrics)
    : attempt_(std::move(attempt)),
      id_(attempt_.job),
      sequence_length_(sequence_length),
      metrics_interval_(metrics_interval),
      journal_(journal),
      metrics_(metrics) {}

bool RunRecorder::handle(const WorkerEvent& event, Time now) {
    if (!is_current()) {
        return false;
    }
    outcome_.reach.take(event);
    std::visit([&](const auto& it) { on(it, now); }, event);
    count_event(metrics_, id_, sequence_length_, event);
    heard_ = heard_ || !std::holds_alternative<WaitingEvent>(event);  // a launcher speaks of waits, too
    return true;
}

void RunRecorder::on(const StartedEvent& event, Time) {
    if (!waiting_ && gives_reasons() && journal_.job(id_).status_reason) {
        journal_.edit(id_).job.status_reason.reset();  // the reason was that it waited for a worker
    }
    journal_.edit(id_).job.dtype = event.dtype;
    auto record = record_of(event);
    record.data["attempt"] = attempt_.number;
    journal_.append(id_, std::move(record));
}

void RunRecorder::on(const ProgressEvent& event, Time now) {
    journal_.set_progress(id_, event);
    if (last_metrics_ && now - *last_metrics_ < metrics_interval_) {
        return;
    }
    last_metrics_ = now;
    last_metrics_step_ = event.step;
    journal_.append(id_, record_of(event));
}

void RunRecorder::on(const EvaluationEvent& event, Time) {
    journal_.set_evaluation(id_, event);
    journal_.append(id_, record_of(event));
}

void RunRecorder::on(const CheckpointEvent& event, Time) {
    api::JobCheckpoint checkpoint{event.step, event.folder, event.seconds, now_text()};
    if (event.bytes != 0) {
        checkpoint.bytes = event.bytes;
    }
    journal_.add_checkpoint(id_, std::move(checkpoint));
    journal_.append(id_, record_of(event));
}

void RunRecorder::on(const WaitingEvent& event, Time) {
    waiting_ = !event.code.empty();
    if (!gives_reasons()) {
        journal_.append(id_, record_of(event));
        return;
    }
    auto& reason = journal_.edit(id_).job.status_reason;
    reason.reset();
    if (waiting_) {
        const std::chrono::duration<double> since(event.since);
        const auto began = std::chrono::duration_cast<std::chrono::system_clock::duration>(since);
        reason = {event.code, event.message, api::rfc3339(std::chrono::system_clock::time_point(began))};
    }
    journal_.append(id_, record_of(event));
}

void RunRecorder::on(const FinishedEvent& event, Time) {
    // A run that resumed at the end has no step of its own: what is known of the last one stays.
    auto last = event.last;
    if (const auto& known = journal_.job(id_).progress; known && last.step < known->step) {
        last = *known;
    }
    if (last.step < outcome_.reach.first_step) {
        last.step = outcome_.reach.first_step;
        last.total_steps = std::max(last.total_steps, last.step);
        last.seconds_remaining = 0;
    }
    journal_.set_progress(id_, last);
    if (event.eval_loss) {
        const auto& known = journal_.job(id_);
        journal_.set_evaluation(id_, {.step = last.step,
                                      .loss = *event.eval_loss,
                                      .kl = known.eval_kl,
                                      .top1_agreement = known.eval_top1_agreement,
                                      .acceptance_rate = known.eval_acceptance_rate});
    }
    // Thinning must not swallow the last step. An earlier recorder may have stored it: of a service that was killed
    // while its worker lived on, or of an attempt that died after its last step.
    if (!last_metrics_step_) {
        last_metrics_step_ = journal_.last_metrics_step(id_);
    }
    if (last_metrics_step_ != last.step) {
        journal_.append(id_, record_of(last));
    }
    auto counted = event.last;  // by this run; the metrics already have the counts of earlier runs
    counted.step = last.step;
    counted.loss = last.loss;
    if (event.last.step <= outcome_.reach.first_step) {
        counted.tokens = 0;
        counted.padding_tokens = 0;
        counted.tokens_per_second = 0;
    }
    metrics_.progress(id_, counted);
    // Stored with the state that follows.
    auto& job = journal_.edit(id_).job;
    job.weights_sha256 = event.weights_sha256;
    job.exported_eval_loss = event.exported_eval_loss;
    end(WorkerOutcome::Kind::finished);
}

void RunRecorder::on(const CancelledEvent& event, Time) {
    end(WorkerOutcome::Kind::cancelled, !event.checkpoint.empty());
}

void RunRecorder::on(const FailedEvent& event, Time) {
    auto kind = WorkerOutcome::Kind::failed;
    if (event.kind == kWorkerKilled || event.kind == kRankLost) {
        kind = WorkerOutcome::Kind::died;
    } else if (event.kind == kWorkerOutOfMemory) {
        kind = WorkerOutcome::Kind::out_of_memory;
    } else if (event.kind == kWorkerNotStarted) {
        kind = WorkerOutcome::Kind::not_started;
    } else if (event.kind == kWorkerCancelled) {
        kind = WorkerOutcome::Kind::cancelled_outside;
    }
    end(kind, false, {event.kind, event.message});
}

bool RunRecorder::gives_reasons() const {
    return journal_.job(id_).state == api::JobState::running;
}

void RunRecorder::end(WorkerOutcome::Kind kind, bool checkpoint, api::StatusReason reason) {
    outcome_.kind = kind;
    outcome_.checkpoint = checkpoint;
    outcome_.reason = std::move(reason);
}

}  // namespace distilld
