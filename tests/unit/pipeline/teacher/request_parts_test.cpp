#include "pipeline/teacher/request_parts.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>

#include "pipeline/core/target_rows.hpp"
#include "tests/unit/pipeline/teacher/teacher_fixture.hpp"

namespace distilld {
namespace {

using test::floats_of;
using test::ids_of;
using test::make_batch;

TEST(SplitRows, TakesAsManySequencesAsTheLimitsAllow) {
    const auto batch = make_batch(5, 4);
    const auto split = [&](std::uint64_t max_rows, std::uint64_t max_tokens) {
        return split_rows(*batch, {max_rows, max_tokens}).value();
    };
    const std::vector<RequestPart> one{{0, 5, 0, 4}};
    EXPECT_EQ(split(0, 0), one);
    EXPECT_EQ(split(5, 20), one);
    const std::vector<RequestPart> twos{{0, 2, 0, 4}, {2, 2, 0, 4}, {4, 1, 0, 4}};
    EXPECT_EQ(split(2, 0), twos);
    EXPECT_EQ(split(0, 11), twos);
    EXPECT_EQ(split(2, 100), twos);
    EXPECT_EQ(split(3, 4).size(), 5U) << "the narrower limit counts";
}

TEST(SplitRows, RefusesASequenceThatFitsNoRequest) {
    const auto refused = split_rows(*make_batch(2, 4), {0, 3});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().message,
              "/dataset/sequence_length: a sequence has 4 positions, the teacher takes 3 in a request");
}

TEST(RequestParts, SeeTheirOwnTokens) {
    auto batch = *make_batch(2, 4);  // ids 1…4 and 5…8
    batch.lengths = {3, 1};
    EXPECT_EQ(input_ids_of(batch, whole_batch(batch)), batch.input_ids);
    EXPECT_EQ(lengths_of(batch, whole_batch(batch)), batch.lengths);
    const RequestPart tail{0, 2, 2, 2};
    EXPECT_EQ(input_ids_of(batch, tail), (std::vector<std::int32_t>{3, 4, 7, 8}));
    EXPECT_EQ(lengths_of(batch, tail), (std::vector<std::int32_t>{1, 0}));
    const RequestPart second{1, 1, 0, 4};
    EXPECT_EQ(input_ids_of(batch, second), (std::vector<std::int32_t>{5, 6, 7, 8}));
    EXPECT_EQ(lengths_of(batch, second), (std::vector<std::int32_t>{1}));
}

/// Targets of a part whose arrays number their elements from `first` on.
AnsweredPart numbered(RequestPart part, TeacherTargets::Kind kind, std::uint32_t width, int first) {
    struct Arrays {
        std::vector<std::uint32_t> ids;
        std::vector<float> values;
        std::vector<float> tail;
    };
    auto arrays = std::make_shared<Arrays>();
    const std::size_t positions = std::size_t{part.rows} * part.columns;
    arrays->ids.resize(positions * width);
    std::iota(arrays->ids.begin(), arrays->ids.end(), static_cast<std::uint32_t>(first));
    arrays->values.resize(positions * width);
    std::iota(arrays->values.begin(), arrays->values.end(), static_cast<float>(first));
    arrays->tail.resize(positions);
    std::iota(arrays->tail.begin(), arrays->tail.end(), static_cast<float>(first));
    TeacherTargets targets;
    targets.kind = kind;
    targets.rows = part.rows;
    targets.columns = part.columns;
    targets.width = width;
    targets.vocabulary = 50;
    targets.values = {ElementType::f32, std::as_bytes(std::span(arrays->values))};
    if (kind == TeacherTargets::Kind::topk) {
        targets.ids = {ElementType::u32, std::as_bytes(std::span(arrays->ids))};
        targets.tail = {ElementType::f32, std::as_bytes(std::span(arrays->tail))};
    }
    targets.held_bytes = 1;
    targets.owner = std::move(arrays);
    return {part, targets};
}

constexpr auto kTopk = TeacherTargets::Kind::topk;

TEST(JoinTargets, PassesASingleAnswerOn) {
    const auto batch = make_batch(2, 3);
    const auto answered = numbered(whole_batch(*batch), kTopk, 2, 0);
    const auto joined = join_targets(*batch, {answered}).value();
    EXPECT_EQ(joined.values.bytes.data(), answered.targets.values.bytes.data()) << "not copied";
    EXPECT_EQ(joined.held_bytes, 1U);
    EXPECT_TRUE(joined.loss_mask.bytes.empty());
}

TEST(JoinTargets, PutsSequencesBackInTheirOrder) {
    const auto batch = make_batch(3, 2);
    const auto joined =
        join_targets(*batch, {numbered({1, 2, 0, 2}, kTopk, 2, 4), numbered({0, 1, 0, 2}, kTopk, 2, 0)}).value();
    EXPECT_EQ(joined.rows, 3U);
    EXPECT_EQ(joined.columns, 2U);
    EXPECT_EQ(joined.width, 2U);
    EXPECT_EQ(joined.vocabulary, 50U);
    EXPECT_EQ(ids_of(joined.ids), (std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
    EXPECT_EQ(floats_of(joined.values), (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
    EXPECT_EQ(floats_of(joined.tail), (std::vector<float>{0, 1, 4, 5, 6, 7}));
    EXPECT_TRUE(joined.loss_mask.bytes.empty());
    EXPECT_EQ(joined.held_bytes, 12U * 4 + 12 * 4 + 6 * 4);
}

TEST(JoinTargets, JoinsPiecesOfASequence) {
    const auto batch = make_batch(1, 3);
    for (const auto kind : {TeacherTargets::Kind::logits, TeacherTargets::Kind::hidden_states}) {
        const auto joined =
            join_targets(*batch, {numbered({0, 1, 2, 1}, kind, 2, 4), numbered({0, 1, 0, 2}, kind, 2, 0)}).value();
        EXPECT_EQ(joined.kind, kind);
        EXPECT_EQ(floats_of(joined.values), (std::vector<float>{0, 1, 2, 3, 4, 5}));
        EXPECT_TRUE(joined.ids.bytes.empty());
        EXPECT_TRUE(joined.tail.bytes.empty());
    }
}

TEST(JoinTargets, MarksPositionsThatNobodyAnswered) {
    const auto batch = make_batch(2, 3);
    auto second = numbered({1, 1, 0, 2}, kTopk, 1, 7);
    const std::array<std::uint8_t, 2> own_mask{1, 0};
    second.targets.loss_mask = {ElementType::u8, std::as_bytes(std::span(own_mask))};
    const auto joined = join_targets(*batch, {numbered({0, 1, 0, 3}, kTopk, 1, 1), second}).value();
    std::vector<bool> given;
    for (std::size_t row = 0; row < 6; ++row) {
        given.push_back(row_is_given(joined, row));
    }
    EXPECT_EQ(given, (std::vector<bool>{true, true, true, true, false, false}));
    EXPECT_EQ(ids_of(joined.ids), (std::vector<std::uint32_t>{1, 2, 3, 7, 8, 0}));
    // One part alone is marked as well when it is not the whole batch.
    const auto alone = join_targets(*batch, {numbered({0, 1, 0, 3}, kTopk, 1, 1)}).value();
    EXPECT_FALSE(row_is_given(alone, 3));
}

TEST(JoinTargets, RefusesPartsThatDoNotFitTogether) {
    const auto batch = make_batch(2, 2);
    const auto refused = [&](std::vector<AnsweredPart> parts) {
        const auto joined = join_targets(*batch, std::move(parts));
        return joined ? std::string("joined") : joined.error().message;
    };
    const AnsweredPart first = numbered({0, 1, 0, 2}, kTopk, 2, 0);
    const AnsweredPart second = numbered({1, 1, 0, 2}, kTopk, 2, 0);
    EXPECT_EQ(refused({first, second}), "joined");
    EXPECT_NE(refused({}).find("no request"), std::string::npos);
    EXPECT_NE(refused({first, first}).find("overlaps"), std::string::npos);
    EXPECT_NE(refused({first, numbered({1, 2, 0, 2}, kTopk, 2, 0)}).find("outside"), std::string::npos);
    EXPECT_NE(refused({first, numbered({1, 1, 0, 2}, kTopk, 3, 0)}).find("width"), std::string::npos);
    EXPECT_NE(refused({first, numbered({1, 1, 0, 2}, TeacherTargets::Kind::logits, 2, 0)}).find("kind"),
              std::string::npos);
    AnsweredPart no_tail = second;
    no_tail.targets.tail = {};
    EXPECT_NE(refused({first, no_tail}).find("another kind"), std::string::npos);
    AnsweredPart halves = second;
    halves.targets.values.type = ElementType::f16;
    EXPECT_NE(refused({first, halves}).find("do not fit its shape"), std::string::npos);
    AnsweredPart short_array = second;
    short_array.targets.ids.bytes = short_array.targets.ids.bytes.first(8);
    EXPECT_NE(refused({first, short_array}).find("do not fit its shape"), std::string::npos);
    AnsweredPart other_shape = second;
    other_shape.targets.columns = 1;
    EXPECT_NE(refused({first, other_shape}).find("sequences 1 to 2, positions 0 to 2 has rows for [1, 1]"),
              std::string::npos)
        << refused({first, other_shape});
}

}  // namespace
}  // namespace distilld
