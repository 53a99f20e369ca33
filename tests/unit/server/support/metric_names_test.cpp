#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "server/jobs/metrics/job_metric_rows.hpp"
#include "server/teacher/teacher_metrics.hpp"

namespace distilld {
namespace {

template <class Source>
void add_names(const std::vector<MetricRow<Source>>& rows, std::vector<std::string>& names) {
    for (const auto& row : rows) {
        names.push_back(row.name);
    }
}

std::vector<std::string> service_names() {
    const auto rows = job_metric_rows();
    std::vector<std::string> names;
    add_names(rows.service, names);
    add_names(rows.runs, names);
    add_names(rows.process, names);
    return names;
}

std::vector<std::string> teacher_names() {
    std::vector<std::string> names;
    add_names(teacher::teacher_metric_rows(), names);
    return names;
}

/// What means the same in every program.
bool is_shared(const std::string& name) {
    return name.starts_with("process_") || name.starts_with("distilld_http_") || name == "distilld_build_info";
}

// One scrape configuration takes in both programs: a sum over a name must be a sum of one thing.
TEST(MetricNames, NoNameHasTwoMeanings) {
    auto names = service_names();
    const auto teacher = teacher_names();
    ASSERT_GE(names.size(), 20U);
    ASSERT_GE(teacher.size(), 9U);
    names.insert(names.end(), teacher.begin(), teacher.end());
    std::erase_if(names, is_shared);
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    EXPECT_EQ(twice, names.end()) << *twice << " is there twice";
}

TEST(MetricNames, NamesAndHelpFollowTheRules) {
    const auto check = [](const auto& rows) {
        for (const auto& row : rows) {
            EXPECT_TRUE(row.name.starts_with("distilld_") || row.name.starts_with("process_")) << row.name;
            EXPECT_EQ(row.name.ends_with("_total"), row.type == MetricType::counter) << row.name;
            EXPECT_EQ(row.name.find("_ms"), std::string::npos) << row.name;
            EXPECT_EQ(row.name.find("milli"), std::string::npos) << row.name;
            EXPECT_TRUE(row.help.ends_with(".")) << row.name;
            // Prometheus shows labels sorted; so do we, whatever the order of a map.
            EXPECT_TRUE(std::is_sorted(row.labels.begin(), row.labels.end())) << row.name;
        }
    };
    const auto rows = job_metric_rows();
    check(rows.service);
    check(rows.runs);
    check(rows.process);
    check(teacher::teacher_metric_rows());
    for (const auto& row : rows.runs) {
        if (row.type != MetricType::counter) {
            EXPECT_THAT(row.labels, ::testing::Contains("job_id")) << row.name;
        }
    }
    for (const auto& name : teacher_names()) {
        EXPECT_TRUE(is_shared(name) || name.starts_with("distilld_teacher_server_")) << name;
    }
}

}  // namespace
}  // namespace distilld
