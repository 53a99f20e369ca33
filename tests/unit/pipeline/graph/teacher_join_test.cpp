#include "pipeline/graph/teacher/teacher_join.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <span>

#include "base/half_float.hpp"
#include "pipeline/core/target_rows.hpp"

namespace distilld {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint32_t kColumns = 2;
constexpr std::uint32_t kWidth = 2;

/// Rows of one part, whose values are −(first + position): exact in every type.
TeacherTargets rows_of(std::uint32_t rows, int first, ElementType type = ElementType::f32, bool tails = true) {
    struct Arrays {
        std::vector<std::uint32_t> ids;
        std::vector<std::uint16_t> halves;
        std::vector<float> floats;
        std::vector<float> tail;
    };
    auto arrays = std::make_shared<Arrays>();
    for (std::uint32_t i = 0; i < rows * kColumns * kWidth; ++i) {
        const float value = -static_cast<float>(first) - static_cast<float>(i);
        arrays->ids.push_back(static_cast<std::uint32_t>(first) + i);
        arrays->halves.push_back(type == ElementType::f16 ? float_to_half(value) : float_to_bfloat16(value));
        arrays->floats.push_back(value);
    }
    arrays->tail.assign(std::size_t{rows} * kColumns, static_cast<float>(-first));
    TeacherTargets targets;
    targets.rows = rows;
    targets.columns = kColumns;
    targets.width = kWidth;
    targets.ids = {ElementType::u32, std::as_bytes(std::span(arrays->ids))};
    const bool wide = type == ElementType::f32;
    targets.values = {type, wide ? std::as_bytes(std::span(arrays->floats)) : std::as_bytes(std::span(arrays->halves))};
    if (tails) {
        targets.tail = {ElementType::f32, std::as_bytes(std::span(arrays->tail))};
    }
    targets.wire_bytes = 10;
    targets.owner = arrays;
    return targets;
}

/// A micro-batch whose rows are of these parts, each part's in order.
PlannedBatch planned_of(const std::vector<std::uint32_t>& parts) {
    PlannedBatch planned;
    TokenBatch tokens;
    tokens.rows = static_cast<std::uint32_t>(parts.size());
    tokens.columns = kColumns;
    std::vector<std::uint64_t> counts(3);
    for (const std::uint32_t part : parts) {
        planned.places.push_back({part, counts[part]++});
    }
    planned.tokens = std::make_shared<const TokenBatch>(std::move(tokens));
    return planned;
}

std::vector<float> values_of(const TeacherTargets& targets) {
    std::vector<float> values;
    for (std::size_t i = 0; i < std::size_t{targets.rows} * kColumns * kWidth; ++i) {
        values.push_back(element_as_float(targets.values, i));
    }
    return values;
}

std::vector<float> tails_of(const TeacherTargets& targets) {
    std::vector<float> values;
    for (std::size_t i = 0; i < targets.tail.bytes.size() / element_size(targets.tail.type); ++i) {
        values.push_back(element_as_float(targets.tail, i));
    }
    return values;
}

TEST(TeacherJoin, EachRowIsItsTeachers) {
    const auto joined = join_teachers(planned_of({1, 0, 1}), {rows_of(1, 100), rows_of(2, 200)});
    ASSERT_TRUE(joined) << joined.error().message;
    EXPECT_EQ(joined->rows, 3U);
    EXPECT_EQ(joined->width, kWidth);
    EXPECT_THAT(values_of(*joined),
                ElementsAre(-200, -201, -202, -203, -100, -101, -102, -103, -204, -205, -206, -207));
    EXPECT_EQ(element_as_id(joined->ids, 4), 100U);
    EXPECT_THAT(tails_of(*joined), ElementsAre(-200, -200, -100, -100, -200, -200));
    EXPECT_TRUE(joined->loss_mask.bytes.empty());
    EXPECT_EQ(joined->wire_bytes, 20U);
}

TEST(TeacherJoin, AMicroBatchOfOneTeacherIsPassedOnAsItIs) {
    TeacherTargets only = rows_of(2, 50, ElementType::f16);
    const void* bytes = only.values.bytes.data();
    const auto joined = join_teachers(planned_of({1, 1}), {std::nullopt, std::move(only)});
    ASSERT_TRUE(joined);
    EXPECT_EQ(joined->values.bytes.data(), bytes);
    EXPECT_EQ(joined->values.type, ElementType::f16);
}

TEST(TeacherJoin, DifferentFloatsAreWidenedExactly) {
    for (const ElementType type : {ElementType::f16, ElementType::bf16}) {
        const auto joined = join_teachers(planned_of({0, 1}), {rows_of(1, 4, type), rows_of(1, 64)});
        ASSERT_TRUE(joined) << joined.error().message;
        EXPECT_EQ(joined->values.type, ElementType::f32);
        EXPECT_THAT(values_of(*joined), ElementsAre(-4, -5, -6, -7, -64, -65, -66, -67));
    }
    const auto same =
        join_teachers(planned_of({0, 1}), {rows_of(1, 4, ElementType::f16), rows_of(1, 64, ElementType::f16)});
    EXPECT_EQ(same->values.type, ElementType::f16) << "what is alike stays as it is";
}

TEST(TeacherJoin, ATailThatOnlyOneKnowsIsUnknownOfTheOther) {
    const auto joined = join_teachers(planned_of({0, 1}), {rows_of(1, 4, ElementType::f32, false), rows_of(1, 64)});
    ASSERT_TRUE(joined) << joined.error().message;
    EXPECT_THAT(tails_of(*joined), ElementsAre(kUnknownTail, kUnknownTail, -64, -64));
    const auto none = join_teachers(planned_of({0, 1}),
                                    {rows_of(1, 4, ElementType::f32, false), rows_of(1, 64, ElementType::f32, false)});
    EXPECT_TRUE(none->tail.bytes.empty());
}

TEST(TeacherJoin, RowsThatOneDidNotGiveStayMarked) {
    static constexpr std::array<std::byte, kColumns> kMask{std::byte{1}, std::byte{0}};
    TeacherTargets masked = rows_of(1, 4);
    masked.loss_mask = {ElementType::u8, kMask};
    const auto joined = join_teachers(planned_of({1, 0}), {std::move(masked), rows_of(1, 64)});
    ASSERT_TRUE(joined) << joined.error().message;
    std::vector<bool> given;
    for (std::size_t i = 0; i < 4; ++i) {
        given.push_back(row_is_given(*joined, i));
    }
    EXPECT_THAT(given, ElementsAre(true, true, true, false));
}

TEST(TeacherJoin, WhatDoesNotFitTogetherIsAnError) {
    TeacherTargets logits = rows_of(1, 4);
    logits.kind = TeacherTargets::Kind::logits;
    const auto kinds = join_teachers(planned_of({0, 1}), {std::move(logits), rows_of(1, 64)});
    ASSERT_FALSE(kinds);
    EXPECT_THAT(kinds.error().message, HasSubstr("of another kind, width or type"));
    const auto missing = join_teachers(planned_of({0, 1}), {rows_of(1, 4), std::nullopt});
    ASSERT_FALSE(missing);
    EXPECT_EQ(missing.error().message, "sequence 1 has no answer");
}

// A micro-batch is as wide as its longest row, a part as wide as the longest that it has.
TEST(TeacherJoin, PartsMayBeNarrowerThanTheMicroBatch) {
    PlannedBatch planned = planned_of({1, 0});
    TokenBatch wide = *planned.tokens;
    wide.columns = kColumns + 1;
    planned.tokens = std::make_shared<const TokenBatch>(wide);
    const auto joined = join_teachers(planned, {rows_of(1, 10), rows_of(1, 20)});
    ASSERT_TRUE(joined) << joined.error().message;
    EXPECT_EQ(joined->columns, kColumns + 1);
    std::vector<float> values;
    for (std::size_t i = 0; i < 2 * (kColumns + 1) * kWidth; ++i) {
        values.push_back(element_as_float(joined->values, i));
    }
    EXPECT_THAT(values, ElementsAre(-20, -21, -22, -23, 0, 0, -10, -11, -12, -13, 0, 0));
    const auto& mask = joined->loss_mask.bytes;
    EXPECT_THAT(std::vector<std::byte>(mask.begin(), mask.end()),
                ElementsAre(std::byte{1}, std::byte{1}, std::byte{0}, std::byte{1}, std::byte{1}, std::byte{0}));
}

}  // namespace
}  // namespace distilld
