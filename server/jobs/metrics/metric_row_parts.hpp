#pragma once

#include <cmath>
#include <optional>
#include <vector>

#include "server/jobs/metrics/metric_sources.hpp"

/// The rows of job_metric_rows() for runs, by subject, and their shared helpers.
namespace distilld {

[[nodiscard]] std::vector<MetricRow<JobRun>> training_metric_rows();
[[nodiscard]] std::vector<MetricRow<JobRun>> teacher_metric_rows();
[[nodiscard]] std::vector<MetricRow<JobRun>> store_metric_rows();
[[nodiscard]] std::vector<MetricRow<JobRun>> worker_metric_rows();

/// The histogram of these counts; nullopt when there are none yet, or when the bounds differ.
[[nodiscard]] inline std::optional<Histogram> histogram_of(const DurationCounts& seconds) {
    if (seconds.counts.size() != kRunDurationBounds.size() + 1 || !std::isfinite(seconds.sum_seconds)) {
        return std::nullopt;
    }
    return Histogram(kRunDurationBounds, seconds.counts, seconds.sum_seconds);
}

}  // namespace distilld
