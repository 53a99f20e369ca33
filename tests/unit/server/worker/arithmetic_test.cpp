#include "server/worker/machine/arithmetic.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/worker/resume_identity.hpp"

namespace distilld {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

/// A machine with a GPU, or one without whose processor does not multiply bf16.
Result<Dtype> with_a_gpu(std::string_view device) {
    return device == "cpu" ? Dtype::fp32 : Dtype::bf16;
}
Result<Dtype> without(std::string_view) {
    return Dtype::fp32;
}

TeacherSpec in_the_process(TeacherPlacement placement) {
    TeacherSpec teacher;
    teacher.model_dir = "teacher";
    teacher.placement = placement;
    return teacher;
}

JobSpec spec_with(TeacherSpec teacher) {
    JobSpec spec;
    spec.student.device = "cuda";
    spec.teachers[""] = std::move(teacher);
    return spec;
}

JobSpec spec_with_several() {
    JobSpec spec;
    spec.student.device = "cuda";
    spec.student.dtype = Dtype::fp32;
    spec.teachers["code"] = in_the_process(TeacherPlacement::rank0);
    spec.teachers["math"] = in_the_process(TeacherPlacement::cpu);
    spec.teachers["served"].endpoints = {"http://served:1"};
    return spec;
}

TEST(Arithmetic, ATeacherComputesWhereItIsPlaced) {
    for (const auto& [placement, dtype] :
         {std::pair(TeacherPlacement::rank0, Dtype::bf16), std::pair(TeacherPlacement::balanced, Dtype::bf16),
          std::pair(TeacherPlacement::cpu, Dtype::fp32), std::pair(TeacherPlacement::shared, Dtype::fp32),
          std::pair(TeacherPlacement::duplicated, Dtype::bf16)}) {
        JobSpec spec = spec_with(in_the_process(placement));
        EXPECT_THAT(open_arithmetics(spec), UnorderedElementsAre("/student/dtype", "/teacher/dtype"));
        ASSERT_TRUE(settle(spec, with_a_gpu));
        EXPECT_EQ(spec.student.dtype, Dtype::bf16);
        EXPECT_EQ(spec.teacher()->dtype, dtype) << static_cast<int>(placement);
        EXPECT_THAT(open_arithmetics(spec), IsEmpty());
    }
    JobSpec beside = spec_with(in_the_process(TeacherPlacement::rank0));
    beside.student.device = "cpu";
    ASSERT_TRUE(settle(beside, with_a_gpu));
    EXPECT_EQ(beside.teacher()->dtype, Dtype::fp32) << "on the student's device";
}

TEST(Arithmetic, OfATeacherElsewhereNothingIsSettled) {
    JobSpec spec = spec_with({});
    spec.teacher()->endpoints = {"http://teacher:1"};
    EXPECT_THAT(open_arithmetics(spec), ElementsAre("/student/dtype"));
    ASSERT_TRUE(settle(spec, with_a_gpu));
    EXPECT_EQ(spec.teacher()->dtype, Dtype::auto_select);
}

TEST(Arithmetic, WhatIsSaidStays) {
    JobSpec spec = spec_with(in_the_process(TeacherPlacement::rank0));
    spec.teacher()->dtype = Dtype::fp32;
    ASSERT_TRUE(settle(spec, with_a_gpu));
    EXPECT_EQ(spec.teacher()->dtype, Dtype::fp32);
}

TEST(Arithmetic, ADeviceThatIsNotThereIsAnError) {
    JobSpec spec = spec_with(in_the_process(TeacherPlacement::rank0));
    const auto settled = settle(
        spec, [](std::string_view device) -> Result<Dtype> { return invalid_input("no " + std::string(device)); });
    ASSERT_FALSE(settled);
    EXPECT_EQ(settled.error().message, "no cuda");
}

TEST(Arithmetic, ARunThatGoesOnElsewhereKeepsItAndSaysSo) {
    JobSpec began = spec_with_several();
    ASSERT_TRUE(settle(began, with_a_gpu));
    const std::string identity = make_run_identity(began, "hash");
    JobSpec resumed = spec_with_several();
    const auto open = open_arithmetics(resumed);
    EXPECT_THAT(open, UnorderedElementsAre("/teachers/code/dtype", "/teachers/math/dtype"));
    adopt_decisions(identity, resumed);
    ASSERT_TRUE(settle(resumed, without));
    EXPECT_EQ(resumed.teachers["code"].dtype, Dtype::bf16);
    EXPECT_EQ(resumed.teachers["math"].dtype, Dtype::fp32);
    EXPECT_THAT(kept_arithmetics(resumed, open, without),
                ElementsAre("teachers.code.dtype auto stays bf16 as at the start of the run; a new run would use fp32 "
                            "here"));
    EXPECT_THAT(kept_arithmetics(resumed, open, with_a_gpu), IsEmpty()) << "as a new one would";
    EXPECT_THAT(kept_arithmetics(resumed, {}, without), IsEmpty()) << "the spec says it";
}

}  // namespace
}  // namespace distilld
