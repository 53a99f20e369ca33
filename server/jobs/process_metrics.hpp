#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

namespace distilld {

/// The process_* metrics every Prometheus client has: prometheus-cpp's core lacks them. One thread at a time.
class ProcessMetrics {
  public:
    explicit ProcessMetrics(prometheus::Registry& registry);
    /// Reads them anew; called before each scrape.
    void refresh();

  private:
    prometheus::Gauge& resident_memory_;
    prometheus::Counter& cpu_seconds_;
    prometheus::Gauge& start_time_;
    prometheus::Gauge& open_files_;
};

}  // namespace distilld
