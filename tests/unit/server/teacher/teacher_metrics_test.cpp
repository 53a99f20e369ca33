#include "server/teacher/teacher_metrics.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "distilld_version.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/server/support/exposition.hpp"

namespace distilld::teacher {
namespace {

// Written by the program as it was before its metrics became rows of tables, save for the names, which began with
// distilld_teacher_ then. A metric that is added needs no line there.
TEST(TeacherMetrics, TextIsWhatItHasAlwaysBeen) {
    TeacherMetrics metrics;
    metrics.update([](TeacherCounts& counts) {
        counts.requests = {{{"200", "kserve"}, 1}, {{"503", "kserve"}, 1}, {{"200", "seed"}, 1}};
        counts.durations[{"kserve"}].observe(0.003);
        counts.durations[{"kserve"}].observe(0.0001);
        counts.durations[{"seed"}].observe(100);
        counts.batches.observe(3);
        counts.batches.observe(200);
        counts.tokens = 64;
        counts.queue_waits.observe(0.002);
        counts.compute_seconds = 1.5;
        counts.dropped = 1;
        counts.waiting = 4;
        counts.models[{"cpu", "float32", "teacher", kVersion}] = 1;
    });
    auto golden = test::exposition_lines(
        test::read_bytes(test::source_dir() / "tests/unit/server/teacher/teacher_metrics_golden.txt"));
    EXPECT_GT(golden.size(), 70U);
    golden.insert("distilld_teacher_server_model_info{device=\"cpu\",dtype=\"float32\",model=\"teacher\",version=\"" +
                  std::string(kVersion) + "\"} 1");
    EXPECT_THAT(test::exposition_lines(metrics.text()), ::testing::IsSupersetOf(golden));
}

TEST(TeacherMetrics, NothingIsSaidOfWhatHasNotHappened) {
    const TeacherMetrics metrics;
    EXPECT_THAT(test::exposition_lines(metrics.text()), ::testing::Contains("distilld_teacher_server_tokens_total 0"));
    EXPECT_FALSE(test::metric_names(metrics.text()).contains("distilld_teacher_server_model_info"));
    EXPECT_FALSE(test::metric_names(metrics.text()).contains("distilld_teacher_server_requests_total"));
}

}  // namespace
}  // namespace distilld::teacher
