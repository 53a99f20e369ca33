#include "server/teacher/teacher_metrics.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "distilld_version.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/server/support/exposition.hpp"

namespace distilld::teacher {
namespace {

// Written by the program as it was before its metrics became rows of tables, save for the names, which began with
// distilld_teacher_ then. A metric that is added needs no line there.
TEST(TeacherMetrics, TextIsWhatItHasAlwaysBeen) {
    TeacherMetrics metrics;
    metrics.answered("kserve", 200, std::chrono::milliseconds(3));
    metrics.answered("kserve", 503, std::chrono::microseconds(100));
    metrics.answered("seed", 200, std::chrono::seconds(100));
    metrics.batch(3);
    metrics.batch(200);
    metrics.computed(64, std::chrono::milliseconds(2), std::chrono::milliseconds(1500));
    metrics.dropped();
    metrics.set_waiting(4);
    models::ServedModel model;
    model.dtype = "float32";
    model.device = "cpu";
    metrics.set_model(model, "teacher");
    auto golden = test::exposition_lines(
        test::read_bytes(DISTILLD_SOURCE_DIR "/tests/unit/server/teacher/teacher_metrics_golden.txt"));
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
