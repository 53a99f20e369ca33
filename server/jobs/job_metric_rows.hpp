#pragma once

#include <vector>

#include "server/jobs/metric_sources.hpp"
#include "server/support/metrics.hpp"

/// What the service's metrics are: name, help and source of each. How they are counted: job_metrics.hpp.
namespace distilld {

struct JobMetricRows {
    /// A row reads what one run has counted since it began. Gauges and histograms are of each active job, and so are
    /// counters with the label job_id; their samples lack that label, which whoever reads the row fills in. Other
    /// counters are sums over all runs. Counters and histograms go on over the runs of a job and never go back.
    std::vector<MetricRow<JobRun>> runs;
    std::vector<MetricRow<ServiceCounts>> service;
    std::vector<MetricRow<ProcessUsage>> process;
};

[[nodiscard]] JobMetricRows job_metric_rows();

}  // namespace distilld
