#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/worker/resume_identity.hpp"

namespace distilld {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

JobSpec spec_of_a_run() {
    JobSpec spec;
    spec.student.model = "student";
    spec.dataset.sequence_length = 8;
    for (const char* name : {"code", "math"}) {
        spec.teachers[name].endpoints = {"http://" + std::string(name) + ":1"};
        spec.teachers[name].top_k = 8;
        spec.teachers[name].targets = TargetsChoice::topk;
    }
    spec.training.max_steps = 10;
    return spec;
}

std::string refusal(const JobSpec& spec) {
    const Result<void> same = check_run_identity(make_run_identity(spec_of_a_run(), "hash"), spec, "hash");
    return same ? "" : same.error().message;
}

TEST(ResumeSeveralTeachers, TheyMayMoveAndBeAskedInAnotherWay) {
    JobSpec spec = spec_of_a_run();
    EXPECT_EQ(refusal(spec), "");
    spec.teachers["math"].endpoints = {"http://elsewhere:2"};
    spec.teachers["math"].max_concurrent = {true, 1024};
    spec.teachers["code"].store = "there";
    EXPECT_EQ(refusal(spec), "");
}

TEST(ResumeSeveralTeachers, WhatOneIsAskedForMayNotChange) {
    JobSpec spec = spec_of_a_run();
    spec.teachers["math"].top_k = 4;
    EXPECT_THAT(refusal(spec),
                StartsWith("/teachers/math/top_k: is 4, but the checkpoint was made with 8; weights depend on it"));
}

TEST(ResumeSeveralTeachers, NeitherMayTheirNames) {
    JobSpec spec = spec_of_a_run();
    auto node = spec.teachers.extract("math");
    node.key() = "maths";
    spec.teachers.insert(std::move(node));
    EXPECT_THAT(refusal(spec), StartsWith("/teachers: the checkpoint was made with others"));
    spec = spec_of_a_run();
    spec.teachers[""] = spec.teachers["math"];
    spec.teachers.erase("math");
    spec.teachers.erase("code");
    EXPECT_THAT(refusal(spec), HasSubstr("teacher")) << "one for all is another run";
}

TEST(ResumeSeveralTeachers, WhatEachSendsIsKept) {
    JobSpec then = spec_of_a_run();
    for (auto& [name, teacher] : then.teachers) {
        teacher.top_k = 0;
        teacher.targets = TargetsChoice::logits;
    }
    JobSpec now = then;
    now.teachers["math"].targets = TargetsChoice::automatic;
    adopt_decisions(make_run_identity(then, "hash"), now);
    EXPECT_EQ(now.teachers["math"].targets, TargetsChoice::logits);
    EXPECT_TRUE(check_run_identity(make_run_identity(then, "hash"), now, "hash"));
}

TEST(ResumeSeveralTeachers, AnotherModelUnderANameIsRefused) {
    const auto around = [](const char* of_code, const char* of_math) {
        RunEnvironment made;
        made.teachers = {{"code", {of_code, true}}, {"math", {of_math, true}}};
        return made;
    };
    const std::string one = "[[[1,-0.1],[2,-3.0]]]";
    const std::string other = "[[[5,-0.1],[6,-3.0]]]";
    JobSpec spec = spec_of_a_run();
    const std::string identity = make_run_identity(spec, "hash", api::spec_table(), around(one.c_str(), other.c_str()));
    EXPECT_EQ(check_teacher(identity, spec, around(one.c_str(), other.c_str())).value(), "");
    const auto swapped = check_teacher(identity, spec, around(one.c_str(), one.c_str()));
    ASSERT_FALSE(swapped);
    EXPECT_THAT(swapped.error().message, StartsWith("/teachers/math/endpoints: the teacher is not the one"));
    spec.overwrite = true;
    EXPECT_THAT(check_teacher(identity, spec, around(one.c_str(), one.c_str())).value(),
                StartsWith("/teachers/math/endpoints"));
}

}  // namespace
}  // namespace distilld
