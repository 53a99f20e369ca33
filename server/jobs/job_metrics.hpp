#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "api/job_types.hpp"
#include "base/unix_time.hpp"
#include "pipeline/core/worker_events.hpp"
#include "server/jobs/job_metric_rows.hpp"

namespace distilld {

/// The service's metrics for Prometheus. Any thread.
class JobMetrics {
  public:
    virtual ~JobMetrics() = default;

    /// Number of jobs in each state, for distilld_jobs.
    virtual void set_job_counts(const std::vector<std::pair<api::JobState, std::uint64_t>>& counts) = 0;

    /// Number of jobs that wait for something to pass, by the code of their reason.
    virtual void set_jobs_waiting(const std::map<std::string, std::uint64_t>& waiting) = 0;

    /// Slots that have a job, and those that have none. Before the first call there are none.
    virtual void set_slots(std::uint32_t busy, std::uint32_t free) = 0;

    /// Whether the job store can be written, and how many events wait for that. Before the first call there is none.
    virtual void set_store(bool writable, std::uint64_t unsaved_events) = 0;

    /// A worker began (or resumed) the job: its counters start at 0 again, ours go on.
    virtual void run_started(const std::string& job_id) = 0;
    /// What the worker said first: the step it begins at, and the input positions of one of its micro-batches.
    virtual void run_details(const std::string& job_id, std::uint64_t first_step, std::uint64_t micro_batch_tokens) = 0;
    virtual void progress(const std::string& job_id, const ProgressEvent& progress) = 0;
    virtual void evaluated(const std::string& job_id, const EvaluationEvent& evaluation) = 0;
    virtual void checkpoint_written(const std::string& job_id, const CheckpointEvent& checkpoint) = 0;
    /// The run ended. The job's gauges stay for the grace period, so that the last value is scraped.
    virtual void run_ended(const std::string& job_id) = 0;
    /// A job was started for the first time, so long after it was submitted.
    virtual void left_queue(double waited_seconds) = 0;
    /// A worker died and is to be started again.
    virtual void worker_restarted() = 0;
    /// One ran out of memory and is to be started again with smaller micro-batches.
    virtual void worker_oom_restarted() = 0;
    /// The job came to a terminal state.
    virtual void job_finished(api::JobState result) = 0;

    /// An attempt to tell a receiver of the end of a job: delivered, retried or given_up.
    virtual void webhook_attempt(const std::string& result) = 0;

    /// One HTTP answer (see http::Observer).
    virtual void http_request(const std::string& method, const std::string& route, unsigned status,
                              std::chrono::nanoseconds duration) = 0;

    /// The text exposition format 0.0.4.
    [[nodiscard]] virtual std::string text() = 0;
};

struct JobMetricsOptions {
    std::chrono::milliseconds gauge_grace{60000};  ///< how long a job's gauges outlive its run
    std::string version;                           ///< for distilld_build_info
    std::filesystem::path store_file{};            ///< of the job store, to tell of its size and disk; empty = none
    std::function<double()> unix_time = unix_now;  ///< seconds
};

std::shared_ptr<JobMetrics> make_job_metrics(JobMetricsOptions options, JobMetricRows rows = job_metric_rows());

/// Counts what a job's worker says of its run while it lasts. `sequence_length` is the spec's. The last event is not
/// among it: what it says has to be compared with what was known (RunRecorder), and a run in the foreground has gone.
void count_event(JobMetrics& metrics, const std::string& job_id, std::uint32_t sequence_length,
                 const WorkerEvent& event);

}  // namespace distilld
