#include "pipeline/teacher/probe/teacher_fingerprint.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace distilld {
namespace {

/// Rows of one sequence; the arrays live as long as this.
struct Rows {
    std::vector<std::uint32_t> ids;
    std::vector<float> values;

    [[nodiscard]] TeacherTargets targets(TeacherTargets::Kind kind, std::uint32_t width) const {
        TeacherTargets made;
        made.kind = kind;
        made.rows = 1;
        made.width = width;
        made.columns = static_cast<std::uint32_t>(values.size() / width);
        made.ids = {ElementType::u32, std::as_bytes(std::span(ids))};
        made.values = {ElementType::f32, std::as_bytes(std::span(values))};
        return made;
    }
    [[nodiscard]] std::string topk(std::uint32_t width) const {
        return teacher_fingerprint(targets(TeacherTargets::Kind::topk, width));
    }
    [[nodiscard]] std::string logits(std::uint32_t width) const {
        return teacher_fingerprint(targets(TeacherTargets::Kind::logits, width));
    }
};

TEST(TeacherFingerprint, NamesTheLikelyTokensOfEachPosition) {
    EXPECT_EQ((Rows{{7, 3, 9, 1}, {-0.5F, -1.25F, -0.25F, -2.0F}}.topk(2)),
              "[[[7,-0.5],[3,-1.25]],[[9,-0.25],[1,-2]]]");
    // Logits of ln 3, ln 1, ln 4 are probabilities of 3/8, 1/8 and 4/8.
    EXPECT_EQ((Rows{{}, {1.0986123F, 0.0F, 1.3862944F}}.logits(3)), "[[[2,-0.6931],[0,-0.9808],[1,-2.0794]]]");
}

TEST(TeacherFingerprint, ALittleNoiseIsTheSameTeacherAndOtherWordsAreAnother) {
    const Rows one{{7, 3, 9, 1}, {-0.5F, -1.25F, -0.25F, -2.0F}};
    Rows moved = one;
    moved.values = {-0.53F, -1.2F, -0.25F, -2.1F};
    EXPECT_TRUE(same_teacher(one.topk(2), moved.topk(2)));
    moved.values[1] = -0.9F;
    EXPECT_FALSE(same_teacher(one.topk(2), moved.topk(2)));
    Rows other = one;
    other.ids = {7, 3, 5, 6};
    EXPECT_FALSE(same_teacher(one.topk(2), other.topk(2)));
    other.ids = {7, 4, 9, 2};  // the less likely ones have changed places with others
    EXPECT_TRUE(same_teacher(one.topk(2), other.topk(2)));
}

TEST(TeacherFingerprint, WhatIsNotKnownIsNoDifference) {
    EXPECT_EQ(teacher_fingerprint(TeacherTargets{}), "");
    const Rows one{{7, 3}, {-0.5F, -1.25F}};
    EXPECT_TRUE(same_teacher("", one.topk(2)));
    EXPECT_TRUE(same_teacher("{}", one.topk(2)));
    EXPECT_TRUE(same_teacher(one.topk(1), one.topk(2))) << "another number of positions was asked";
}

}  // namespace
}  // namespace distilld
