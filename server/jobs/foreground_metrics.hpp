#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "pipeline/core/worker_events.hpp"
#include "server/jobs/job_metrics.hpp"

namespace distilld {

/// The job_id of the one job of a program that runs it in the foreground.
inline constexpr const char* kForegroundJob = "run";

/// The metrics of one job in the foreground, its worker's restarts included: what a service would count of it. One
/// thread.
class ForegroundMetrics {
  public:
    /// The job runs from here on. `sequence_length` is the spec's.
    ForegroundMetrics(std::shared_ptr<JobMetrics> metrics, std::uint32_t sequence_length);

    void count(const WorkerEvent& event);

  private:
    std::shared_ptr<JobMetrics> metrics_;
    std::uint32_t sequence_length_;
    std::optional<std::uint32_t> started_;  ///< batch_size of the worker that has begun last
};

}  // namespace distilld
