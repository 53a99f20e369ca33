#include "server/jobs/metrics/metric_series.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "server/jobs/store/event_records.hpp"

namespace distilld {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;

api::JobEvent metrics_at(std::uint64_t step, double loss) {
    ProgressEvent event;
    event.step = step;
    event.loss = loss;
    event.tokens_per_second = 100;
    return record_of(event);
}

std::vector<std::uint64_t> steps(const std::vector<SeriesPoint>& points) {
    std::vector<std::uint64_t> result;
    for (const auto& point : points) {
        result.push_back(point.step);
    }
    return result;
}

std::vector<double> values(const std::vector<SeriesPoint>& points) {
    std::vector<double> result;
    for (const auto& point : points) {
        result.push_back(point.value);
    }
    return result;
}

TEST(MetricSeries, NamesAreTheNumbersOfTheEvents) {
    const auto& names = series_names();
    for (const char* name : {"loss", "grad_norm", "tokens", "nonfinite_steps", "eval_loss", "eval_kl"}) {
        EXPECT_THAT(names, Contains(name));
    }
    for (const char* name : {"step", "eval_step", "generates", "bottleneck", "fetch", "eval_samples"}) {
        EXPECT_THAT(names, Not(Contains(name)));
    }
    EXPECT_EQ(std::count(names.begin(), names.end(), "loss"), 1);
}

TEST(MetricSeries, ShortOnesStayWhole) {
    EXPECT_THAT(steps(thinned({}, 2)), ElementsAre());
    EXPECT_THAT(steps(thinned({{1, 5}}, 2)), ElementsAre(1));
    EXPECT_THAT(steps(thinned({{1, 5}, {2, 4}, {3, 6}}, 3)), ElementsAre(1, 2, 3));
    EXPECT_THAT(steps(thinned({{1, 5}, {2, 4}, {3, 6}}, 2)), ElementsAre(1, 3));
}

TEST(MetricSeries, ThinningKeepsEndsAndPeaks) {
    std::vector<SeriesPoint> points;
    for (std::uint64_t step = 0; step < 10000; ++step) {
        points.push_back({step, 1 + 1e-6 * static_cast<double>(step)});
    }
    points[4321].value = 50;
    points[4320].value = -50;
    points[7777].value = std::numeric_limits<double>::quiet_NaN();
    for (const std::uint32_t most : {2U, 3U, 4U, 5U, 10U, 101U, 500U, 9999U}) {
        const auto kept = thinned(points, most);
        EXPECT_LE(kept.size(), most);
        EXPECT_EQ(kept.front().step, 0U);
        EXPECT_EQ(kept.back().step, 9999U);
        EXPECT_TRUE(
            std::is_sorted(kept.begin(), kept.end(), [](const auto& a, const auto& b) { return a.step < b.step; }));
        if (most >= 6) {
            EXPECT_THAT(steps(kept), Contains(4321U)) << most;
            EXPECT_THAT(steps(kept), Contains(4320U)) << most;
            EXPECT_THAT(steps(kept), Contains(7777U)) << most;
        }
    }
    // What is between the ends is in parts alike: none is empty, none is left out.
    const auto kept = thinned(points, 1002);
    for (std::size_t i = 1; i < kept.size(); ++i) {
        EXPECT_LE(kept[i].step - kept[i - 1].step, 40U);
    }
}

TEST(MetricSeries, CollectsWhatIsAskedFor) {
    SeriesCollector collector({{"eval_loss", "loss", "eval_kl"}, {}, 10});
    EvaluationEvent evaluation;
    evaluation.loss = 3;
    collector.add(record_of(evaluation));
    collector.add(metrics_at(1, 2.5));
    collector.add(metrics_at(2, std::nan("")));
    evaluation.step = 2;
    evaluation.loss = 2;
    evaluation.kl = 0.5;
    collector.add(record_of(evaluation));
    collector.add(record_of(LogEvent{"info", "no step"}));
    const auto series = collector.take();
    ASSERT_EQ(series.size(), 3U);
    EXPECT_EQ(series[0].name, "eval_loss");
    EXPECT_THAT(values(series[0].points), ElementsAre(3, 2));
    EXPECT_THAT(steps(series[0].points), ElementsAre(0, 2));
    EXPECT_THAT(values(series[1].points), ElementsAre(2.5, ::testing::IsNan()));
    EXPECT_EQ(series[1].total_points, 2U);
    // Nobody asked the teacher at the first: that is no value that was not finite.
    EXPECT_THAT(steps(series[2].points), ElementsAre(2));
}

TEST(MetricSeries, FiguresOfAProgramAreSeriesByTheirNames) {
    SeriesCollector all({.names = {"loss"}, .max_points = 10, .all_figures = true});
    SeriesCollector one({.names = {"figures/b/c", "figures/none"}, .max_points = 10});
    const FiguresEvent events[] = {{1, {{"a", 0.5}}}, {2, {}, 0, "it failed"}, {3, {{"a", 0.25}, {"b/c", 7}}}};
    for (const FiguresEvent& event : events) {
        all.add(record_of(event));
        one.add(record_of(event));
    }
    all.add(metrics_at(2, 2.5));
    const auto series = all.take();
    ASSERT_EQ(series.size(), 3U);
    EXPECT_EQ(series[1].name, "figures/a");
    EXPECT_THAT(steps(series[1].points), ElementsAre(1, 3));
    EXPECT_THAT(values(series[1].points), ElementsAre(0.5, 0.25));
    EXPECT_EQ(series[2].name, "figures/b/c");
    EXPECT_THAT(values(series[2].points), ElementsAre(7));
    const auto asked = one.take();
    ASSERT_EQ(asked.size(), 2U);
    EXPECT_THAT(values(asked[0].points), ElementsAre(7));
    EXPECT_EQ(asked[1].total_points, 0U);

    SeriesCollector bounded({.names = {}, .max_points = 10, .all_figures = true});
    for (std::uint64_t step = 1; step <= 100; ++step) {
        bounded.add(record_of(FiguresEvent{step, {{"n" + std::to_string(step), 1}}}));
    }
    EXPECT_EQ(bounded.take().size(), kMaxFigureSeries) << "a program with new names each time does not fill an answer";
}

TEST(MetricSeries, AGenerateJobTellsOfNoStudent) {
    ProgressEvent event;
    event.generates = true;
    event.step = 7;
    event.total_steps = 9;
    SeriesCollector collector({series_names(), std::nullopt, 100});
    collector.add(record_of(event));
    for (const auto& series : collector.take()) {
        const bool of_rows = series.name == "total_steps" || series.name == "seconds_remaining" ||
                             series.name == "seconds_elapsed" || series.name == "tokens" ||
                             series.name == "tokens_per_second";
        EXPECT_EQ(series.total_points, of_rows ? 1U : 0U) << series.name;
    }
}

TEST(MetricSeries, WhatWasDoneAgainStandsOnce) {
    SeriesCollector collector({{"loss"}, {}, 10});
    for (const std::uint64_t step : {1U, 2U, 3U, 4U}) {
        collector.add(metrics_at(step, 10 + static_cast<double>(step)));
    }
    collector.add(metrics_at(3, 33));  // resumed behind step 2
    collector.add(metrics_at(3, 34));
    collector.add(metrics_at(4, 44));
    const auto series = collector.take();
    EXPECT_THAT(values(series[0].points), ElementsAre(11, 12, 34, 44));
    EXPECT_EQ(series[0].total_points, 4U);
}

TEST(MetricSeries, BeginsBehindAStep) {
    SeriesCollector collector({{"loss"}, 2, 10});
    for (const std::uint64_t step : {0U, 1U, 2U, 3U, 4U, 2U, 3U}) {
        collector.add(metrics_at(step, static_cast<double>(step)));
    }
    EXPECT_THAT(steps(collector.take()[0].points), ElementsAre(3));
}

}  // namespace
}  // namespace distilld
