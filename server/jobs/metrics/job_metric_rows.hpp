#pragma once

#include <vector>

#include "server/jobs/metrics/metric_sources.hpp"
#include "server/support/metrics.hpp"

/// The service's metrics: name, help and source of each. job_metrics.hpp explains the counting.
namespace distilld {

struct JobMetricRows {
    /// A row reads what one run has counted since it began. Gauges, histograms and counters with the label job_id exist
    /// per active job; their samples lack that label, and the reader adds it. Other counters are sums over all runs.
    /// Counters and histograms continue over the runs of a job and never decrease.
    std::vector<MetricRow<JobRun>> runs;
    std::vector<MetricRow<ServiceCounts>> service;
    std::vector<MetricRow<ProcessUsage>> process;
};

[[nodiscard]] JobMetricRows job_metric_rows();

}  // namespace distilld
