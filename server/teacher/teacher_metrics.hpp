#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "models/serving/teacher_scorer.hpp"
#include "server/support/metrics.hpp"

namespace distilld::teacher {

/// Counters and gauges of a teacher server.
struct TeacherCounts {
    std::map<LabelValues, double> requests;      ///< by code, protocol
    std::map<LabelValues, Histogram> durations;  ///< seconds, by protocol
    std::uint64_t tokens = 0;
    double compute_seconds = 0;
    std::uint64_t dropped = 0;
    Histogram batches;      ///< requests per batch
    Histogram queue_waits;  ///< seconds
    std::size_t waiting = 0;
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

    /// After the answer to a scoring request. `protocol` is kserve or seed.
    void answered(std::string_view protocol, unsigned status, std::chrono::nanoseconds duration);
    /// After the compute thread took this many requests together.
    void batch(std::size_t requests);
    /// After the computation of one request.
    void computed(std::uint64_t tokens, std::chrono::nanoseconds queue_wait, std::chrono::nanoseconds compute);
    /// After a client gave up before its request was computed.
    void dropped();
    void set_waiting(std::size_t requests);
    void set_model(const models::ServedModel& model, const std::string& name);

    [[nodiscard]] std::string text() const;

  private:
    const std::vector<MetricRow<TeacherCounts>> rows_;
    mutable std::mutex mutex_;  ///< guards counts_
    TeacherCounts counts_;
};

}  // namespace distilld::teacher
