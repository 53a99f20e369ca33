#include "pipeline/core/vocabulary_fit.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "base/half_float.hpp"
#include "pipeline/core/target_rows.hpp"
#include "tests/unit/pipeline/teacher/teacher_fixture.hpp"

namespace distilld {
namespace {

using test::floats_of;
using test::ids_of;
using testing::ElementsAre;

constexpr float kWithoutBound = std::numeric_limits<float>::infinity();

struct Held {
    std::vector<std::uint32_t> ids;
    std::vector<float> values;
    std::vector<float> tail;
};

TeacherTargets topk(std::uint32_t width, const std::vector<std::uint32_t>& ids,
                    const std::vector<double>& probabilities, const std::vector<double>& tails = {}) {
    auto held = std::make_shared<Held>();
    held->ids = ids;
    for (const double probability : probabilities) {
        held->values.push_back(static_cast<float>(std::log(probability)));
    }
    for (const double tail : tails) {
        held->tail.push_back(static_cast<float>(std::log(tail)));
    }
    TeacherTargets targets;
    targets.kind = TeacherTargets::Kind::topk;
    targets.rows = 1;
    targets.columns = static_cast<std::uint32_t>(ids.size()) / width;
    targets.width = width;
    targets.ids = {ElementType::u32, std::as_bytes(std::span(held->ids))};
    targets.values = {ElementType::f32, std::as_bytes(std::span(held->values))};
    if (!tails.empty()) {
        targets.tail = {ElementType::f32, std::as_bytes(std::span(held->tail))};
    }
    targets.owner = held;
    return targets;
}

TeacherTargets logits(std::uint32_t width, const std::vector<float>& values) {
    auto held = std::make_shared<std::vector<float>>(values);
    TeacherTargets targets;
    targets.kind = TeacherTargets::Kind::logits;
    targets.rows = 1;
    targets.columns = static_cast<std::uint32_t>(values.size()) / width;
    targets.width = width;
    targets.values = {ElementType::f32, std::as_bytes(std::span(*held))};
    targets.owner = held;
    return targets;
}

std::vector<double> probabilities_of(const ArrayView& values) {
    std::vector<double> probabilities;
    for (const float value : floats_of(values)) {
        probabilities.push_back(std::exp(static_cast<double>(value)));
    }
    return probabilities;
}

TEST(VocabularyFit, CutsLogits) {
    const auto cut = fit_vocabulary(logits(5, {1, 2, 3, 4, 5, -1, -2, -3, -4, -5}), 3).value();
    EXPECT_EQ(cut.width, 3U);
    EXPECT_EQ(floats_of(cut.values), (std::vector<float>{1, 2, 3, -1, -2, -3}));
    EXPECT_EQ(cut.held_bytes, 6 * sizeof(float));
    const auto none = fit_vocabulary(logits(3, {-kWithoutBound, -kWithoutBound, 1}), 2);
    ASSERT_FALSE(none) << "all of its probability is on an id that the student lacks";
    EXPECT_THAT(none.error().message, testing::HasSubstr("no probability on the 2 ids"));
}

TEST(VocabularyFit, FillsLogitsUpWithProbabilityZero) {
    for (const ElementType type : {ElementType::f32, ElementType::f16, ElementType::bf16}) {
        TeacherTargets targets = logits(2, {1, 2, 3, 4});
        const std::vector<std::uint16_t> halves =
            type == ElementType::f16
                ? std::vector<std::uint16_t>{float_to_half(1), float_to_half(2), float_to_half(3), float_to_half(4)}
                : std::vector<std::uint16_t>{float_to_bfloat16(1), float_to_bfloat16(2), float_to_bfloat16(3),
                                             float_to_bfloat16(4)};
        if (type != ElementType::f32) {
            targets.values = {type, std::as_bytes(std::span(halves))};
        }
        const auto filled = fit_vocabulary(targets, 3).value();
        ASSERT_EQ(filled.width, 3U);
        std::vector<float> values;
        for (std::size_t i = 0; i < 6; ++i) {
            values.push_back(element_as_float(filled.values, i));
        }
        EXPECT_EQ(values, (std::vector<float>{1, 2, -kWithoutBound, 3, 4, -kWithoutBound}));
        EXPECT_EQ(find_defect(filled, 3), std::nullopt);
    }
}

// The teacher over five tokens of p = 0.4, 0.3, 0.15, 0.1, 0.05, of which the student has the first four and id 1 is
// what its second entry would be: given that the fifth does not come, the others have a twentieth more of what is left.
TEST(VocabularyFit, DropsEntriesAndDividesByWhatIsLeft) {
    const auto fitted = fit_vocabulary(topk(3, {0, 4, 1}, {0.4, 0.35, 0.15}, {0.1}), 4).value();
    EXPECT_EQ(fitted.width, 3U);
    EXPECT_EQ(ids_of(fitted.ids), (std::vector<std::uint32_t>{0, 1, 3})) << "the highest that is not named";
    const auto named = probabilities_of(fitted.values);
    const double tail = probabilities_of(fitted.tail).front();
    EXPECT_NEAR(named[0], 0.4 / 0.65, 1e-6);
    EXPECT_NEAR(named[1], 0.15 / 0.65, 1e-6);
    EXPECT_NEAR(named[2], 0.1 / 0.65 / 2, 1e-6) << "an even share of the tail, which is of two tokens";
    EXPECT_NEAR(tail, 0.1 / 0.65 / 2, 1e-6);
    EXPECT_NEAR(named[0] + named[1] + named[2] + tail, 1, 1e-6);
    EXPECT_EQ(find_defect(fitted, 4), std::nullopt);
}

TEST(VocabularyFit, TheTailIsWhatIsLeftWhereItIsNotTold) {
    const auto told = fit_vocabulary(topk(2, {7, 2, 2, 1}, {0.5, 0.25, 0.5, 0.25}, {0.25, 0.25}), 6).value();
    const auto not_told = fit_vocabulary(topk(2, {7, 2, 2, 1}, {0.5, 0.25, 0.5, 0.25}), 6).value();
    EXPECT_EQ(ids_of(told.ids), ids_of(not_told.ids));
    EXPECT_EQ(floats_of(told.values), floats_of(not_told.values));
    EXPECT_FLOAT_EQ(floats_of(told.tail)[0], floats_of(not_told.tail)[0]);
    // The second row names nothing that the student lacks: it keeps its bits, and what it does not tell.
    EXPECT_EQ(floats_of(not_told.tail)[1], kUnknownTail);
    EXPECT_EQ(floats_of(not_told.values)[2], static_cast<float>(std::log(0.5)));
    EXPECT_EQ(floats_of(not_told.values)[3], static_cast<float>(std::log(0.25)));
}

TEST(VocabularyFit, ARowThatNamesAllTokensHasNoTail) {
    const auto fitted = fit_vocabulary(topk(4, {3, 0, 2, 1}, {0.4, 0.3, 0.2, 0.1}, {1e-9}), 3).value();
    EXPECT_EQ(fitted.width, 3U);
    EXPECT_EQ(ids_of(fitted.ids), (std::vector<std::uint32_t>{0, 2, 1}));
    const auto named = probabilities_of(fitted.values);
    EXPECT_NEAR(named[0], 0.5, 1e-6);
    EXPECT_NEAR(named[1], 1.0 / 3, 1e-6);
    EXPECT_NEAR(named[2], 1.0 / 6, 1e-6);
    EXPECT_EQ(floats_of(fitted.tail)[0], -kWithoutBound);
}

TEST(VocabularyFit, LeavesWhatFitsAlone) {
    const TeacherTargets rows = topk(2, {3, 0}, {0.5, 0.25}, {0.25});
    const auto fitted = fit_vocabulary(rows, 4).value();
    EXPECT_EQ(fitted.values.bytes.data(), rows.values.bytes.data());
    const auto nothing = fit_vocabulary(topk(2, {4, 5}, {0.5, 0.5}, {0.0}), 4);
    ASSERT_FALSE(nothing);
    EXPECT_THAT(nothing.error().message, testing::HasSubstr("position 0 has no probability"));
}

// Of logits the two ways lead to the same: cut and reduced, or reduced to all entries and fitted.
TEST(VocabularyFit, RowsOfAllTokensAreTheSoftmaxOfTheCutLogits) {
    const TeacherTargets padded = logits(6, {0.5F, -1, 2, 0.25F, 3, 1});
    const auto cut = reduce_logits(fit_vocabulary(padded, 4).value(), 4).value();
    const auto dropped = fit_vocabulary(reduce_logits(padded, 6).value(), 4).value();
    EXPECT_EQ(ids_of(cut.ids), ids_of(dropped.ids));
    for (std::size_t i = 0; i < 4; ++i) {
        EXPECT_NEAR(floats_of(cut.values)[i], floats_of(dropped.values)[i], 1e-6);
    }
}

TEST(VocabularyFit, ARowThatWasNotGivenStaysSo) {
    TeacherTargets rows = topk(1, {9, 9}, {0.5, 0.5});
    const std::vector<std::uint8_t> mask{1, 0};
    rows.loss_mask = {ElementType::u8, std::as_bytes(std::span(mask))};
    const auto fitted = fit_vocabulary(rows, 4).value();
    EXPECT_TRUE(row_is_given(fitted, 0));
    EXPECT_FALSE(row_is_given(fitted, 1));
    EXPECT_EQ(ids_of(fitted.ids)[0], 3U);
}

TEST(VocabularyFit, CutsTheHead) {
    const std::vector<float> values{1, 2, 3, 4, 5, 6};
    TeacherHead head;
    head.rows = 3;
    head.columns = 2;
    head.values = {ElementType::f32, std::as_bytes(std::span(values))};
    const TeacherHead cut = fit_head(head, 2);
    EXPECT_EQ(cut.rows, 2U);
    EXPECT_EQ(floats_of(cut.values), (std::vector<float>{1, 2, 3, 4}));
    EXPECT_EQ(fit_head(head, 5).rows, 3U);
}

}  // namespace
}  // namespace distilld
