#include "pipeline/core/vocabulary/mapped_rows.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <span>

#include "pipeline/core/target_rows.hpp"

namespace distilld {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;

TokenTable letters(std::string_view of) {
    TokenTable made;
    for (const char c : of) {
        made.bytes.emplace_back(1, c);
    }
    return made;
}

/// Top-k rows over the teacher's ids.
struct TeacherRows {
    std::vector<std::uint32_t> ids;
    std::vector<float> values;
    std::vector<float> tail;

    [[nodiscard]] TeacherTargets targets(std::uint32_t width) const {
        TeacherTargets made;
        made.rows = 1;
        made.columns = static_cast<std::uint32_t>(ids.size()) / width;
        made.width = width;
        made.ids = {ElementType::u32, std::as_bytes(std::span(ids))};
        made.values = {ElementType::f32, std::as_bytes(std::span(values))};
        if (!tail.empty()) {
            made.tail = {ElementType::f32, std::as_bytes(std::span(tail))};
        }
        return made;
    }
};

float log_of(double probability) {
    return static_cast<float>(std::log(probability));
}

std::vector<std::uint32_t> ids_in(const TeacherTargets& targets, std::size_t row) {
    std::vector<std::uint32_t> ids;
    for (std::size_t i = row * targets.width; i < (row + 1) * targets.width; ++i) {
        ids.push_back(element_as_id(targets.ids, i));
    }
    return ids;
}

double probability(const ArrayView& array, std::size_t index) {
    return std::exp(element_as_double(array, index));
}

TEST(MappedRows, EntriesOfTheTeacherAloneGoToTheTail) {
    const TokenAlignment alignment(letters("xabc"), letters("abcdefgh"));
    const TeacherRows teacher{{1, 4, 0}, {log_of(0.5), log_of(0.25), log_of(0.1)}, {log_of(0.15)}};
    MappedRows rows(alignment, 3, 3);
    EXPECT_THAT(rows.put(1, teacher.targets(3), 0), DoubleNear(0.6, 1e-6));
    const TeacherTargets mapped = rows.finish();
    EXPECT_EQ(mapped.columns, 3U);
    EXPECT_FALSE(row_is_given(mapped, 0));
    EXPECT_TRUE(row_is_given(mapped, 1));
    EXPECT_THAT(ids_in(mapped, 1), ElementsAre(2, 1, 3)) << "b, a, and c in the free place";
    const double share = 0.15 / 5;  // of the ids that the teacher did not name
    EXPECT_THAT(probability(mapped.values, 3), DoubleNear(0.5, 1e-6));
    EXPECT_THAT(probability(mapped.values, 4), DoubleNear(0.1, 1e-6));
    EXPECT_THAT(probability(mapped.values, 5), DoubleNear(share, 1e-6));
    EXPECT_THAT(probability(mapped.tail, 1), DoubleNear(0.15 + 0.25 - share, 1e-6));
}

TEST(MappedRows, ARowThatTheStudentHasKeepsItsBits) {
    const TokenAlignment alignment(letters("cba"), letters("abc"));
    const TeacherRows teacher{{2, 0}, {-0.25F, -3.0F}, {kUnknownTail}};
    MappedRows rows(alignment, 2, 1);
    static_cast<void>(rows.put(0, teacher.targets(2), 0));
    const TeacherTargets mapped = rows.finish();
    EXPECT_THAT(ids_in(mapped, 0), ElementsAre(0, 2));
    EXPECT_EQ(element_as_float(mapped.values, 0), -0.25F);
    EXPECT_EQ(element_as_float(mapped.values, 1), -3.0F);
    EXPECT_EQ(element_as_float(mapped.tail, 0), kUnknownTail);
}

TEST(MappedRows, EqualIdsShareAPlaceInTheOrderOfTheirSum) {
    const TokenAlignment alignment(letters("abc"), letters("abba"));
    const TeacherRows teacher{{0, 1, 2}, {log_of(0.4), log_of(0.3), log_of(0.2)}, {}};
    MappedRows rows(alignment, 3, 1);
    EXPECT_THAT(rows.put(0, teacher.targets(3), 0), DoubleNear(0.9, 1e-6));
    const TeacherTargets mapped = rows.finish();
    EXPECT_EQ(mapped.width, 2U) << "as many as there are common ids";
    EXPECT_THAT(ids_in(mapped, 0), ElementsAre(1, 0));
    EXPECT_THAT(probability(mapped.values, 0), DoubleNear(0.5, 1e-6));
}

TEST(MappedRows, OfRandomRowsMassIsKeptAndNoIdIsNamedTwice) {
    std::mt19937 random(11);
    const std::string alphabet = "abcdefghijklmnopqrstuvwxyz";
    std::string mixed = alphabet;
    for (int round = 0; round < 200; ++round) {
        std::ranges::shuffle(mixed, random);
        const std::string student = mixed.substr(0, 4 + random() % 20);
        std::ranges::shuffle(mixed, random);
        const std::string theirs = mixed.substr(0, 8 + random() % 18);
        const TokenAlignment alignment(letters(student), letters(theirs));
        const std::uint32_t width = 1 + random() % 7;
        std::vector<double> all(theirs.size());
        double sum = 0;
        for (double& one : all) {
            one = -std::log((static_cast<double>(random() % 1000) + 1) / 1001);
            sum += one;
        }
        std::vector<std::uint32_t> order(theirs.size());
        for (std::uint32_t id = 0; id < order.size(); ++id) {
            order[id] = id;
        }
        std::ranges::sort(order, [&](std::uint32_t a, std::uint32_t b) { return all[a] > all[b]; });
        TeacherRows teacher;
        double tail = 1;
        double common = 0;
        for (std::uint32_t i = 0; i < width; ++i) {
            const double p = all[order[i]] / sum;
            teacher.ids.push_back(order[i]);
            teacher.values.push_back(log_of(p));
            tail -= p;
            common += student.find(theirs[order[i]]) != std::string::npos ? p : 0;
        }
        if (round % 2 == 0) {
            teacher.tail.push_back(log_of(std::max(0.0, tail)));
        }
        MappedRows rows(alignment, width, 1);
        EXPECT_THAT(rows.put(0, teacher.targets(width), 0), DoubleNear(common, 1e-5));
        const TeacherTargets mapped = rows.finish();
        double mass = 0;
        std::set<std::uint32_t> named;
        for (std::size_t i = 0; i < mapped.width; ++i) {
            const std::uint32_t id = element_as_id(mapped.ids, i);
            ASSERT_LT(id, student.size());
            ASSERT_TRUE(theirs.find(student[id]) != std::string::npos);
            named.insert(id);
            mass += probability(mapped.values, i);
        }
        EXPECT_EQ(named.size(), mapped.width);
        const bool told = element_as_float(mapped.tail, 0) != kUnknownTail;
        EXPECT_THAT(told ? mass + probability(mapped.tail, 0) : 1.0, DoubleNear(1, 1e-5));
    }
}

}  // namespace
}  // namespace distilld
