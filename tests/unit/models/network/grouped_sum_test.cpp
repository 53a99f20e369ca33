#include "models/network/grouped_sum.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "models/optimizers/state_sizes.hpp"

namespace distilld::models {
namespace {

/// What was added to what.
struct Term {
    std::string text;

    Term() = default;
    Term(const Term&) = delete;
    Term& operator=(const Term&) = delete;
    Term(Term&& other) noexcept : text(std::move(other.text)) { other.text.clear(); }
    Term& operator=(Term&& other) noexcept {
        text = std::move(other.text);
        other.text.clear();
        return *this;
    }
};

void add_term(Term& total, const Term& more) {
    total.text = "(" + total.text + " + " + more.text + ")";
}

using Sum = GroupedSum<Term, add_term>;

std::string sum_of(const std::vector<std::uint32_t>& groups) {
    Sum sum;
    for (const std::uint32_t group : groups) {
        sum.of(group).text += std::to_string(group);
    }
    return sum.take().text;
}

TEST(GroupedSum, AddsNeighboursInPairs) {
    EXPECT_EQ(sum_of({}), "");
    EXPECT_EQ(sum_of({0, 0, 0}), "000");
    EXPECT_EQ(sum_of({0, 0, 1}), "(00 + 1)");
    EXPECT_EQ(sum_of({0, 1, 2}), "((0 + 1) + 2)");
    EXPECT_EQ(sum_of({0, 1, 2, 3, 3}), "((0 + 1) + (2 + 33))");
    EXPECT_EQ(sum_of({0, 1, 2, 3, 4, 5, 6}), "(((0 + 1) + (2 + 3)) + ((4 + 5) + 6))");
}

TEST(GroupedSum, LeavesOutGroupsWithoutAddends) {
    EXPECT_EQ(sum_of({3}), "3");
    EXPECT_EQ(sum_of({0, 2}), "(0 + 2)");
    EXPECT_EQ(sum_of({1, 2}), "(1 + 2)");
    EXPECT_EQ(sum_of({0, 3, 4}), "((0 + 3) + 4)");
    EXPECT_EQ(sum_of({1, 4, 5, 7}), "(1 + ((4 + 5) + 7))");
}

TEST(GroupedSum, IsTheSumOfItsPartsAlongTheTree) {
    EXPECT_EQ(sum_of({0, 1, 2, 3}), "(" + sum_of({0, 1}) + " + " + sum_of({2, 3}) + ")");
    EXPECT_EQ(sum_of({0, 2, 3}), "(" + sum_of({0}) + " + " + sum_of({2, 3}) + ")");
}

TEST(GroupedSum, IsEmptyAfterwards) {
    Sum sum;
    sum.of(0).text = "a";
    sum.of(5).text = "b";
    EXPECT_EQ(sum.take().text, "(a + b)");
    sum.of(0).text = "c";
    EXPECT_EQ(sum.take().text, "c");
}

int alive = 0;

struct Counted {
    bool held = false;

    Counted() = default;
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;
    Counted(Counted&& other) noexcept : held(std::exchange(other.held, false)) {}
    Counted& operator=(Counted&& other) noexcept {
        std::swap(held, other.held);
        return *this;
    }
    ~Counted() { alive -= held ? 1 : 0; }
};

void add_counted(Counted&, const Counted&) {}

TEST(GroupedSum, HoldsAsManySumsAsEstimatesSay) {
    for (std::uint32_t groups = 1; groups <= 40; ++groups) {
        TrainingSpec training;
        training.micro_batches = 64;
        training.gradient_groups = groups;
        alive = 0;
        int most = 0;
        GroupedSum<Counted, add_counted> sum;
        for (std::uint32_t group = 0; group < groups; ++group) {
            Counted& running = sum.of(group);
            running.held = true;
            most = std::max(most, ++alive);
        }
        EXPECT_EQ(most, static_cast<int>(gradient_sums(training))) << groups;
    }
}

}  // namespace
}  // namespace distilld::models
