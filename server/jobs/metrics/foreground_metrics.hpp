#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "pipeline/core/worker_events.hpp"
#include "server/jobs/metrics/job_metrics.hpp"

namespace distilld {

/// The job_id of a job that runs in the foreground.
inline constexpr const char* kForegroundJob = "run";

/// The metrics of one foreground job, as a service would count them, including restarts of its worker. One thread.
class ForegroundMetrics {
  public:
    /// The job starts running. `sequence_length` is the spec's.
    ForegroundMetrics(std::shared_ptr<JobMetrics> metrics, std::uint32_t sequence_length);

    void count(const WorkerEvent& event);

  private:
    std::shared_ptr<JobMetrics> metrics_;
    std::uint32_t sequence_length_;
    std::optional<std::uint32_t> started_;  ///< batch_size of the worker that started last
};

}  // namespace distilld
