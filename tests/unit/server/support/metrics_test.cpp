#include "server/support/metrics.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <stdexcept>

#include "server/support/process_metrics.hpp"

namespace distilld {
namespace {

using ::testing::HasSubstr;

struct Kettle {
    double litres = 1.5;
    std::map<LabelValues, double> cups{{{"green", "big"}, 2}, {{"black", "small"}, 3}};
    Histogram waits{kBounds};
    static constexpr std::array kBounds{1.0, 10.0};
};

std::string text_of(const std::vector<MetricRow<Kettle>>& rows, const Kettle& kettle) {
    std::vector<MetricReading> readings;
    read_rows(rows, kettle, readings);
    return metrics_text(readings);
}

TEST(Metrics, RowsBecomeText) {
    const std::vector<MetricRow<Kettle>> rows{
        {"kettle_litres", "Water in it.", MetricType::gauge, {}, [](const Kettle& kettle) { return kettle.litres; }},
        {"kettle_cups_total",
         "Cups poured.",
         MetricType::counter,
         {"tea", "size"},
         [](const Kettle& kettle) { return samples_of(kettle.cups); }},
        {"kettle_wait_seconds",
         "Time to boil.",
         MetricType::histogram,
         {},
         [](const Kettle& kettle) { return kettle.waits; }},
        {"kettle_spills_total",
         "None yet, so it is left out.",
         MetricType::counter,
         {"floor"},
         [](const Kettle&) { return std::vector<MetricSample>{}; }},
    };
    Kettle kettle;
    kettle.waits.observe(0.5);
    kettle.waits.observe(1.0);
    kettle.waits.observe(2.5);
    kettle.waits.observe(11);
    EXPECT_EQ(text_of(rows, kettle),
              "# HELP kettle_litres Water in it.\n"
              "# TYPE kettle_litres gauge\n"
              "kettle_litres 1.5\n"
              "# HELP kettle_cups_total Cups poured.\n"
              "# TYPE kettle_cups_total counter\n"
              "kettle_cups_total{tea=\"black\",size=\"small\"} 3\n"
              "kettle_cups_total{tea=\"green\",size=\"big\"} 2\n"
              "# HELP kettle_wait_seconds Time to boil.\n"
              "# TYPE kettle_wait_seconds histogram\n"
              "kettle_wait_seconds_count 4\n"
              "kettle_wait_seconds_sum 15\n"
              "kettle_wait_seconds_bucket{le=\"1\"} 2\n"
              "kettle_wait_seconds_bucket{le=\"10\"} 3\n"
              "kettle_wait_seconds_bucket{le=\"+Inf\"} 4\n");
}

TEST(Metrics, LabelValuesAreEscaped) {
    const std::vector<MetricRow<Kettle>> rows{{"x", "X.", MetricType::gauge, {"name"}, [](const Kettle&) {
                                                   return std::vector<MetricSample>{{{"a\"b\\c\nd"}, 1.0}};
                                               }}};
    EXPECT_THAT(text_of(rows, {}), HasSubstr(R"(x{name="a\"b\\c\nd"} 1)"));
}

TEST(Metrics, ASampleMustBeWhatItsRowSays) {
    const std::vector<MetricRow<Kettle>> unlabelled{
        {"x", "X.", MetricType::gauge, {"name"}, [](const Kettle&) { return 1.0; }}};
    EXPECT_THROW(text_of(unlabelled, {}), std::logic_error);
    const std::vector<MetricRow<Kettle>> no_histogram{
        {"x", "X.", MetricType::histogram, {}, [](const Kettle&) { return 1.0; }}};
    EXPECT_THROW(text_of(no_histogram, {}), std::logic_error);
}

TEST(Metrics, ProcessUsageIsOfThisProcess) {
    const auto before = read_process_usage();
    EXPECT_GT(before.resident_bytes, 1e6);
    EXPECT_GT(before.start_time_seconds, 1.6e9);
    const std::ofstream file("/dev/null");
    EXPECT_EQ(read_process_usage().open_files, before.open_files + 1);
    EXPECT_GE(read_process_usage().cpu_seconds, before.cpu_seconds);
}

}  // namespace
}  // namespace distilld
