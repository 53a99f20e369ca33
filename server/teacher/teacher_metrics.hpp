#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "server/support/metrics.hpp"

namespace distilld::teacher {

/// Counters and gauges of a teacher server.
struct TeacherCounts {
    std::map<LabelValues, double> requests;      ///< answered scoring requests, by code, protocol
    std::map<LabelValues, Histogram> durations;  ///< seconds, by protocol
    std::uint64_t tokens = 0;
    double compute_seconds = 0;
    std::uint64_t dropped = 0;  ///< requests that were given up before they were computed
    Histogram batches;          ///< requests that the compute thread took together
    Histogram queue_waits;      ///< seconds
    std::size_t waiting = 0;
    std::uint64_t prompt_tokens = 0;     ///< of sequences that have begun
    std::uint64_t generated_tokens = 0;  ///< read by a client or not
    std::size_t sequences_running = 0;
    std::size_t sequences_waiting = 0;
    std::map<LabelValues, double> models;  ///< 1 for the model, by device, dtype, model, version

    TeacherCounts();
};

/// Name, help and source of each metric. The names begin with distilld_teacher_server_; distilld_teacher_ alone is for
/// a service's requests to teachers.
[[nodiscard]] std::vector<MetricRow<TeacherCounts>> teacher_metric_rows();

/// Counters of a teacher server, in the Prometheus text format. Any thread.
class TeacherMetrics {
  public:
    explicit TeacherMetrics(std::vector<MetricRow<TeacherCounts>> rows = teacher_metric_rows());

    /// `change` is called with the counts under the lock.
    template <class Change>
    void update(Change change) {
        const std::lock_guard lock(mutex_);
        change(counts_);
    }

    [[nodiscard]] std::string text() const;

  private:
    const std::vector<MetricRow<TeacherCounts>> rows_;
    mutable std::mutex mutex_;  ///< guards counts_
    TeacherCounts counts_;
};

}  // namespace distilld::teacher
