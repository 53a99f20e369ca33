#pragma once

#include <vector>

#include "server/support/metrics.hpp"

namespace distilld {

struct ProcessUsage {
    double resident_bytes = 0;
    double peak_resident_bytes = 0;
    double cpu_seconds = 0;         ///< user and system, since the start
    double start_time_seconds = 0;  ///< Unix time
    double open_files = 0;
};

/// The current usage of this process.
[[nodiscard]] ProcessUsage read_process_usage();

/// The process_* metrics that Prometheus clients usually export; prometheus-cpp's core lacks them.
[[nodiscard]] std::vector<MetricRow<ProcessUsage>> process_metric_rows();

}  // namespace distilld
