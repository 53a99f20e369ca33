#include "api/spec_paths.hpp"

#include <gtest/gtest.h>

namespace distilld::api {
namespace {

TEST(SpecPaths, HaveOneForm) {
    EXPECT_EQ(normal_path("a/b/"), "a/b");
    EXPECT_EQ(normal_path("a/./c/../b"), "a/b");
    EXPECT_EQ(normal_path("/"), "/");
}

TEST(SpecPaths, AreMadeAbsolute) {
    JobSpec spec;
    spec.student.model = "models/tiny";
    spec.dataset.train = {"/data/t.jsonl"};
    spec.teachers[""].ca_file = "x/../ca.pem";
    spec.output = "out";
    make_paths_absolute(spec, "/base");
    EXPECT_EQ(spec.student.model, "/base/models/tiny");
    EXPECT_EQ(spec.dataset.train, std::vector<std::string>{"/data/t.jsonl"});
    EXPECT_TRUE(spec.dataset.eval.empty());
    EXPECT_EQ(spec.teacher()->ca_file, "/base/ca.pem");
    EXPECT_EQ(spec.output, "/base/out");
}

}  // namespace
}  // namespace distilld::api
