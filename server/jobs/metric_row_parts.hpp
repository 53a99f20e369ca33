#pragma once

#include <cmath>
#include <optional>
#include <vector>

#include "server/jobs/job_metric_rows.hpp"

/// The tables of job_metric_rows(), by subject, and what they share. Each function's rows are of the kind that its name
/// says (see JobMetricRows).
namespace distilld {

[[nodiscard]] std::vector<MetricRow<JobRun>> training_gauges();
[[nodiscard]] std::vector<MetricRow<JobRun>> training_histograms();
[[nodiscard]] std::vector<MetricRow<JobRun>> training_counters();
[[nodiscard]] std::vector<MetricRow<JobRun>> training_job_counters();

[[nodiscard]] std::vector<MetricRow<JobRun>> teacher_gauges();
[[nodiscard]] std::vector<MetricRow<JobRun>> teacher_histograms();
[[nodiscard]] std::vector<MetricRow<JobRun>> teacher_counters();
[[nodiscard]] std::vector<MetricRow<JobRun>> teacher_job_counters();

[[nodiscard]] std::vector<MetricRow<JobRun>> store_gauges();
[[nodiscard]] std::vector<MetricRow<JobRun>> store_counters();

[[nodiscard]] std::vector<MetricRow<JobRun>> worker_gauges();
[[nodiscard]] std::vector<MetricRow<JobRun>> worker_counters();

template <class Number>
[[nodiscard]] double metric_number(Number value) {
    return static_cast<double>(value);
}

/// What was counted by size; nothing when there is none yet, or when it has other bounds.
[[nodiscard]] inline std::optional<Histogram> histogram_of(const DurationCounts& seconds) {
    if (seconds.counts.size() != kRunDurationBounds.size() + 1 || !std::isfinite(seconds.sum_seconds)) {
        return std::nullopt;
    }
    return Histogram(kRunDurationBounds, seconds.counts, seconds.sum_seconds);
}

}  // namespace distilld
