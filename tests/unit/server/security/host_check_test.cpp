#include "server/security/host_check.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace distilld {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> refused(const JobSpec& spec, const std::vector<std::string>& patterns) {
    std::vector<std::string> pointers;
    for (const auto& violation : check_hosts(spec, HostRule::make(patterns).value()).violations) {
        EXPECT_EQ(violation.code, "host_not_allowed");
        pointers.push_back(violation.pointer);
    }
    return pointers;
}

TEST(HostCheck, NamesEachUrlThatIsNotAllowed) {
    JobSpec spec;
    spec.teachers[""];
    spec.teacher()->endpoints = {"http://127.0.0.1:8600", "http://169.254.169.254/latest",
                                 "https://teacher.example/v1"};
    EXPECT_THAT(refused(spec, {}), ElementsAre("/teacher/endpoints/1"));
    EXPECT_THAT(refused(spec, {"127.0.0.1:8600"}), ElementsAre("/teacher/endpoints/1", "/teacher/endpoints/2"));
    EXPECT_THAT(refused(spec, {"127.0.0.1:8600", "*.example:443", "169.254.169.254"}), IsEmpty());
    EXPECT_THAT(refused(spec, {"127.0.0.1:8601", "teacher.example:80"}),
                ElementsAre("/teacher/endpoints/0", "/teacher/endpoints/1", "/teacher/endpoints/2"));
}

TEST(HostCheck, LooksAtEveryTeacherAndAtSinks) {
    JobSpec spec;
    spec.teachers["a"].endpoints = {"http://[fe80::1]:80"};
    spec.metrics.mlflow_url = "http://metadata.google.internal/";
    spec.metrics.otlp_url = "http://collector:4318";
    EXPECT_THAT(refused(spec, {}), ElementsAre("/teachers/a/endpoints/0", "/metrics/mlflow_url"));
    spec.teachers["a"].endpoints = {"http://teacher"};
    EXPECT_THAT(refused(spec, {"teacher"}), ElementsAre("/metrics/mlflow_url"))
        << "where teachers may be is nothing to a sink";
}

}  // namespace
}  // namespace distilld
