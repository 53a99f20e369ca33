#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/job_types.hpp"

/// The measurements of a job, as series over its steps for plots.
namespace distilld {

struct SeriesQuery {
    std::vector<std::string> names;  ///< from series_names(), each once
    /// Only later steps.
    std::optional<std::uint64_t> after_step{};
    std::uint32_t max_points = 500;  ///< per series; at least 2
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

/// The names that can be requested: the numbers of a progress event (loss), and those of an evaluation with the prefix
/// "eval_" (eval_loss).
[[nodiscard]] const std::vector<std::string>& series_names();

/// At most `max_points` (2 at least) of the points: the first, the last, and the smallest and greatest value of each of
/// several equal parts between them. So a plot of thousands of steps still shows a peak of one step. A value that was
/// not finite is greater than any other.
[[nodiscard]] std::vector<SeriesPoint> thinned(std::vector<SeriesPoint> points, std::uint32_t max_points);

/// Makes series from a job's events, in their order. If a run resumed from a checkpoint and repeated steps, the last
/// values count.
class SeriesCollector {
  public:
    explicit SeriesCollector(SeriesQuery query);

    /// Events of type metrics or evaluation; others change nothing.
    void add(const api::JobEvent& event);
    /// In the order of the names, thinned. Call once, at the end.
    [[nodiscard]] std::vector<MetricSeries> take();

  private:
    struct Wanted {
        std::string member;  ///< in the event's data
        api::EventType type = api::EventType::metrics;
        bool may_be_missing = false;  ///< null means that it is missing, not that it was not finite
        MetricSeries series;
    };
    SeriesQuery query_;
    std::vector<Wanted> wanted_;
};

}  // namespace distilld
