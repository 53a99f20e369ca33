#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/job_types.hpp"

/// What was measured in the course of a job, as series over its steps that a plot can take.
namespace distilld {

struct SeriesQuery {
    std::vector<std::string> names;  ///< of series_names(), each once
    /// Only later steps.
    std::optional<std::uint64_t> after_step{};
    std::uint32_t max_points = 500;  ///< of a series; 2 at least
};

struct SeriesPoint {
    std::uint64_t step = 0;
    double value = 0;  ///< NaN: it was not finite
};

struct MetricSeries {
    std::string name;
    std::uint64_t total_points = 0;   ///< before thinned()
    std::vector<SeriesPoint> points;  ///< steps ascend
};

/// What can be asked for: the numbers of a progress by their names (loss), those of an evaluation with "eval_" before
/// them (eval_loss).
[[nodiscard]] const std::vector<std::string>& series_names();

/// At most `max_points` (2 at least) of the points: the first, the last, and of what is between them, in parts of as
/// many points each, the smallest and the greatest value. So a peak of one step is seen in a plot of thousands. A value
/// that was not finite is greater than any other.
[[nodiscard]] std::vector<SeriesPoint> thinned(std::vector<SeriesPoint> points, std::uint32_t max_points);

/// Makes series of a job's events, in their order. Where a run went on from a checkpoint and did steps again, what it
/// said last stands.
class SeriesCollector {
  public:
    explicit SeriesCollector(SeriesQuery query);

    /// Of type metrics or evaluation; others change nothing.
    void add(const api::JobEvent& event);
    /// In the order of the names, thinned. Once, at the end.
    [[nodiscard]] std::vector<MetricSeries> take();

  private:
    struct Wanted {
        std::string member;  ///< of the event's data
        api::EventType type = api::EventType::metrics;
        bool may_be_missing = false;  ///< null means that there is none, not that it was not finite
        MetricSeries series;
    };
    SeriesQuery query_;
    std::vector<Wanted> wanted_;
};

}  // namespace distilld
