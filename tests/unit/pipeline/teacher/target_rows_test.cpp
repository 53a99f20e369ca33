#include "pipeline/core/target_rows.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/half_float.hpp"
#include "net/body_buffer.hpp"
#include "tests/unit/pipeline/teacher/teacher_fixture.hpp"

namespace distilld {
namespace {

using test::floats_of;
using test::ids_of;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(TopKReducer, TakesTheBestAndLeavesTheRestInTheTail) {
    TopKReducer reducer(1, 2, 4, 2);
    ASSERT_TRUE(reducer.add_row(std::vector<float>{0, 3, 1, 2}));
    ASSERT_TRUE(reducer.add_row(std::vector<float>{5, 5, 5, 5}));  // equal: the smaller ids
    const auto targets = reducer.finish();
    EXPECT_EQ(ids_of(targets.ids), (std::vector<std::uint32_t>{1, 3, 0, 1}));
    const double total = 1 + std::exp(3.0) + std::exp(1.0) + std::exp(2.0);
    const auto values = floats_of(targets.values);
    const auto tail = floats_of(targets.tail);
    EXPECT_NEAR(values[0], 3 - std::log(total), 1e-6);
    EXPECT_NEAR(values[1], 2 - std::log(total), 1e-6);
    EXPECT_NEAR(tail[0], std::log(1 + std::exp(1.0)) - std::log(total), 1e-6);
    EXPECT_NEAR(values[2], std::log(0.25), 1e-6);
    EXPECT_NEAR(tail[1], std::log(0.5), 1e-6);
}

TEST(TopKReducer, KeepsATinyTailAndAnEmptyOne) {
    TopKReducer tiny(1, 1, 3, 1);
    ASSERT_TRUE(tiny.add_row(std::vector<float>{0, -50, -60}));
    EXPECT_NEAR(floats_of(tiny.finish().tail)[0], std::log(std::exp(-50.0) + std::exp(-60.0)), 1e-4);
    TopKReducer whole(1, 1, 2, 10);
    ASSERT_TRUE(whole.add_row(std::vector<float>{1, 2}));
    const auto targets = whole.finish();
    EXPECT_EQ(targets.width, 2U);
    EXPECT_EQ(floats_of(targets.tail)[0], -kInfinity);
}

TEST(TopKReducer, RefusesRowsThatAreNoDistribution) {
    for (const auto& row :
         {std::vector<float>{0, NAN}, std::vector<float>{0, kInfinity}, std::vector<float>{-kInfinity, -kInfinity}}) {
        TopKReducer reducer(1, 1, 2, 1);
        EXPECT_FALSE(reducer.add_row(row));
    }
    TopKReducer masked(1, 1, 2, 1);
    EXPECT_TRUE(masked.add_row(std::vector<float>{0, -kInfinity}));
}

struct Arrays {
    std::vector<std::uint32_t> ids{1, 2};
    std::vector<float> values{-0.5F, -1.5F};
    std::vector<float> tail{-2.0F};

    [[nodiscard]] TeacherTargets targets() const {
        TeacherTargets result;
        result.rows = 1;
        result.columns = 1;
        result.width = 2;
        result.ids = {ElementType::u32, std::as_bytes(std::span(ids))};
        result.values = {ElementType::f32, std::as_bytes(std::span(values))};
        result.tail = {ElementType::f32, std::as_bytes(std::span(tail))};
        return result;
    }
};

TEST(FindDefect, ChecksTopK) {
    EXPECT_EQ(find_defect(Arrays().targets(), 3), std::nullopt);
    EXPECT_NE(find_defect(Arrays().targets(), 2), std::nullopt);
    Arrays negative;
    negative.ids[0] = static_cast<std::uint32_t>(-1);
    EXPECT_NE(find_defect(negative.targets(), 0), std::nullopt);
    for (const float bad : {NAN, kInfinity, 0.5F}) {
        Arrays value;
        value.values[1] = bad;
        EXPECT_NE(find_defect(value.targets(), 3), std::nullopt) << bad;
        Arrays tail;
        tail.tail[0] = bad;
        EXPECT_NE(find_defect(tail.targets(), 3), std::nullopt) << bad;
    }
    Arrays impossible;
    impossible.values[1] = -kInfinity;
    EXPECT_EQ(find_defect(impossible.targets(), 3), std::nullopt);
}

TEST(FindDefect, ChecksLogits) {
    const auto check = [](std::vector<float> values, std::uint32_t vocabulary) {
        TeacherTargets targets;
        targets.kind = TeacherTargets::Kind::logits;
        targets.rows = 1;
        targets.columns = 2;
        targets.width = 2;
        targets.values = {ElementType::f32, std::as_bytes(std::span(values))};
        return find_defect(targets, vocabulary);
    };
    EXPECT_EQ(check({1, 2, 3, -kInfinity}, 2), std::nullopt);
    EXPECT_NE(check({1, 2, 3, 4}, 3)->find("2 logits"), std::string::npos);
    EXPECT_NE(check({1, 2, 3, 4}, 3)->find("not 3 as expected"), std::string::npos);
    EXPECT_NE(check({1, 2, NAN, 4}, 2)->find("position 1"), std::string::npos);
    EXPECT_NE(check({1, kInfinity, 3, 4}, 2), std::nullopt);
    EXPECT_NE(check({1, 2, -kInfinity, -kInfinity}, 2), std::nullopt);
}

TEST(FindDefect, ChecksHiddenStates) {
    const auto check = [](std::vector<float> values) {
        TeacherTargets targets;
        targets.kind = TeacherTargets::Kind::hidden_states;
        targets.rows = 2;
        targets.columns = 1;
        targets.width = 2;
        targets.values = {ElementType::f32, std::as_bytes(std::span(values))};
        return find_defect(targets, 7);
    };
    EXPECT_EQ(check({1, -2, 3, 4}), std::nullopt) << "their width is no vocabulary";
    for (const float bad : {NAN, kInfinity, -kInfinity}) {
        ASSERT_NE(check({1, 2, 3, bad}), std::nullopt) << bad;
        EXPECT_NE(check({1, 2, 3, bad})->find("sequence 1, position 0: element 1"), std::string::npos);
    }
}

/// `count` values of a type, as an array.
std::vector<std::byte> bytes_of(ElementType type, const std::vector<float>& values) {
    std::vector<std::byte> bytes;
    for (const float value : values) {
        const std::uint16_t half = type == ElementType::f16 ? float_to_half(value) : float_to_bfloat16(value);
        const auto* from = reinterpret_cast<const std::byte*>(&value);
        const auto* from_half = reinterpret_cast<const std::byte*>(&half);
        type == ElementType::f32 ? bytes.insert(bytes.end(), from, from + 4)
                                 : bytes.insert(bytes.end(), from_half, from_half + 2);
    }
    return bytes;
}

TEST(FindDefect, FindsOneBadNumberOfEachTypeWhereverItIs) {
    constexpr std::uint32_t kWidth = 37;  // no whole number of vectors
    using enum TeacherTargets::Kind;
    for (const ElementType type : {ElementType::f32, ElementType::f16, ElementType::bf16}) {
        for (const auto kind : {topk, logits, hidden_states}) {
            const auto check = [type, kind](const std::vector<float>& values) {
                const std::vector<std::byte> bytes = bytes_of(type, values);
                const std::vector<std::uint32_t> ids(values.size(), 3);
                TeacherTargets targets;
                targets.kind = kind;
                targets.rows = 1;
                targets.columns = 3;
                targets.width = kWidth;
                targets.ids = {ElementType::u32, std::as_bytes(std::span(ids))};
                targets.values = {type, bytes};
                return find_defect(targets, kWidth);
            };
            const std::vector<float> good(3 * kWidth, -0.25F);
            EXPECT_EQ(check(good), std::nullopt);
            for (std::size_t at = 0; at < good.size(); ++at) {
                const auto with = [&](float value) {
                    std::vector<float> values = good;
                    values[at] = value;
                    return check(values);
                };
                EXPECT_NE(with(NAN), std::nullopt) << at;
                EXPECT_NE(with(-NAN), std::nullopt) << at;
                EXPECT_NE(with(kInfinity), std::nullopt) << at;
                EXPECT_EQ(with(-kInfinity).has_value(), kind == hidden_states) << at;
                EXPECT_EQ(with(0.02F).has_value(), kind == topk) << at;
                EXPECT_EQ(with(0.0099F), std::nullopt) << at;
                EXPECT_EQ(with(-0.0F), std::nullopt) << at;
            }
            std::vector<float> empty = good;
            std::fill(empty.begin() + kWidth, empty.begin() + 2 * kWidth, -kInfinity);
            EXPECT_EQ(check(empty).has_value(), kind != topk) << "a row of logits needs one that is finite";
        }
    }
}

TEST(FindDefect, LooksAtNoRowThatWasNotGiven) {
    const std::array<std::uint8_t, 2> second_only{0, 1};
    const ArrayView mask{ElementType::u8, std::as_bytes(std::span(second_only))};
    const std::array<std::uint32_t, 2> ids{99, 1};
    const std::array<float, 2> nothing_first{NAN, -1};
    TeacherTargets targets;
    targets.rows = 1;
    targets.columns = 2;
    targets.width = 1;
    targets.ids = {ElementType::u32, std::as_bytes(std::span(ids))};
    targets.values = {ElementType::f32, std::as_bytes(std::span(nothing_first))};
    targets.tail = targets.values;
    for (const auto kind :
         {TeacherTargets::Kind::topk, TeacherTargets::Kind::logits, TeacherTargets::Kind::hidden_states}) {
        targets.kind = kind;
        targets.loss_mask = {};
        EXPECT_NE(find_defect(targets, kind == TeacherTargets::Kind::logits ? 1 : 3), std::nullopt);
        targets.loss_mask = mask;
        EXPECT_EQ(find_defect(targets, kind == TeacherTargets::Kind::logits ? 1 : 3), std::nullopt);
    }
    targets.kind = TeacherTargets::Kind::logits;
    const auto reduced = reduce_logits(targets, 1).value();
    EXPECT_FALSE(row_is_given(reduced, 0));
    EXPECT_TRUE(row_is_given(reduced, 1));
}

TEST(FindMissingRow, IsContentOnlyWhereNoLossIsCarried) {
    auto tokens = *test::make_batch(2, 2);
    TeacherTargets targets;
    targets.rows = 2;
    targets.columns = 2;
    EXPECT_EQ(find_missing_row(targets, tokens), std::nullopt) << "no mask: all rows are there";
    const std::array<std::uint8_t, 4> given{1, 1, 0, 1};
    targets.loss_mask = {ElementType::u8, std::as_bytes(std::span(given))};
    ASSERT_NE(find_missing_row(targets, tokens), std::nullopt);
    EXPECT_NE(find_missing_row(targets, tokens)->find("sequence 1, position 0"), std::string::npos);
    tokens.labels[2] = kIgnoredLabel;
    EXPECT_EQ(find_missing_row(targets, tokens), std::nullopt);
}

TEST(BufferPool, RecyclesWithinItsBound) {
    BufferPool pool(1000);
    const std::byte* address = nullptr;
    {
        const auto buffer = pool.acquire();
        buffer->resize(600);
        address = buffer->data();
    }
    EXPECT_EQ(pool.idle_count(), 1U);
    const auto again = pool.acquire();
    EXPECT_EQ(again->data(), address);
    EXPECT_EQ(again->size(), 0U);
    {
        const auto second = pool.acquire();
        second->resize(600);
        const auto large = pool.acquire();
        large->resize(600);
    }
    EXPECT_EQ(pool.idle_count(), 1U);
}

}  // namespace
}  // namespace distilld
