#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/job_types.hpp"

/// The measurements of a job, as series over its steps for plots.
namespace distilld {

struct SeriesQuery {
    std::vector<std::string> names;  ///< from series_names(), or with kFigurePrefix, each once
    /// Only later steps.
    std::optional<std::uint64_t> after_step{};
    std::uint32_t max_points = 500;  ///< per series; at least 2
    bool all_figures = false;        ///< of eval.command too, whatever their names
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

/// Before the name of a figure that eval.command has printed.
inline constexpr std::string_view kFigurePrefix = "figures/";
/// Limit of the series of SeriesQuery::all_figures.
inline constexpr std::size_t kMaxFigureSeries = 64;

/// The names that can be requested besides figures: the numbers of a progress event (loss), and those of an evaluation
/// with the prefix "eval_" (eval_loss).
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

    /// Events of type metrics, evaluation or figures; others change nothing.
    void add(const api::JobEvent& event);
    /// In the order of the names, then other figures as they came first; thinned. Call once, at the end.
    [[nodiscard]] std::vector<MetricSeries> take();

  private:
    struct Wanted {
        std::string member;  ///< in the event's data
        api::EventType type = api::EventType::metrics;
        bool may_be_missing = false;  ///< null means that it is missing, not that it was not finite
        MetricSeries series;
    };
    void add_figures(const boost::json::object& figures);

    SeriesQuery query_;
    std::size_t figures_added_ = 0;
    std::vector<Wanted> wanted_;
};

}  // namespace distilld
