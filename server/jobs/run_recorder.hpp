#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "base/job_attempt.hpp"
#include "pipeline/core/worker_events.hpp"
#include "server/jobs/metrics/job_metrics.hpp"
#include "server/jobs/store/event_records.hpp"
#include "server/jobs/store/job_journal.hpp"
#include "server/jobs/table/job_table.hpp"

namespace distilld {

/// Records the events of one worker of a job in the journal and the metrics, until it reports its end. This is the
/// place where the events of a worker that was replaced end: they change nothing.
class RunRecorder {
  public:
    /// `metrics_interval`: shortest time between two stored metrics events.
    RunRecorder(JobAttempt attempt, std::uint32_t sequence_length, std::chrono::milliseconds metrics_interval,
                JobJournal& journal, JobMetrics& metrics);

    /// False: the event is ignored, because the worker is not the job's current one.
    bool handle(const WorkerEvent& event, std::chrono::steady_clock::time_point now);
    /// The job has not ended, and no later attempt has begun.
    [[nodiscard]] bool is_current() const { return journal_.is_current(attempt_); }

    /// The worker has sent something.
    [[nodiscard]] bool heard() const noexcept { return heard_; }
    /// Valid when the worker has ended.
    [[nodiscard]] const WorkerOutcome& outcome() const noexcept { return outcome_; }

  private:
    using Time = std::chrono::steady_clock::time_point;
    /// Events that are only recorded.
    template <class Event>
    void on(const Event& event, Time) {
        journal_.append(id_, record_of(event));
    }
    void on(const StartedEvent& event, Time now);
    void on(const ProgressEvent& event, Time now);
    void on(const EvaluationEvent& event, Time now);
    void on(const CheckpointEvent& event, Time now);
    void on(const WaitingEvent& event, Time now);
    void on(const FinishedEvent& event, Time now);
    void on(const CancelledEvent& event, Time now);
    void on(const FailedEvent& event, Time now);
    /// The reason of a running job is what its worker waits for; while it is on its way to a pause, the reason is the
    /// pause.
    [[nodiscard]] bool gives_reasons() const;
    void end(WorkerOutcome::Kind kind, bool checkpoint = false, api::StatusReason reason = {});

    const JobAttempt attempt_;
    const std::string id_;
    const std::uint32_t sequence_length_;
    const std::chrono::milliseconds metrics_interval_;
    JobJournal& journal_;
    JobMetrics& metrics_;
    std::optional<Time> last_metrics_;
    std::optional<std::uint64_t> last_metrics_step_;
    bool heard_ = false;
    bool waiting_ = false;  ///< for something that the worker has named
    WorkerOutcome outcome_;
};

}  // namespace distilld
