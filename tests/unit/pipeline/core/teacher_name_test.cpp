#include "pipeline/core/teacher_name.hpp"

#include <gtest/gtest.h>

namespace distilld {
namespace {

TEST(TeacherName, PointersNameTheTeacherAndUrlsStay) {
    EXPECT_EQ(of_named_teacher("/teacher/store: there is none (/teacher/patience_secs is over)", "math"),
              "/teachers/math/store: there is none (/teachers/math/patience_secs is over)");
    EXPECT_EQ(of_named_teacher("http://host:1/v2/models/teacher/infer: no answer; /teacher/top_k", "a"),
              "http://host:1/v2/models/teacher/infer: no answer; /teachers/a/top_k");
    EXPECT_EQ(of_named_teacher("nothing of it", "a"), "nothing of it");
}

}  // namespace
}  // namespace distilld
