#include "pipeline/core/ranks/sum_plan.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "models/network/grouped_sum.hpp"

namespace distilld {
namespace {

void add_text(std::string& total, const std::string& more) {
    total = "(" + total + " + " + more + ")";
}

using Sum = models::GroupedSum<std::string, add_text>;

/// What `ranks` ranks sum along the plan, as text.
std::string summed_by(std::uint32_t ranks, const std::vector<bool>& present) {
    const auto groups = static_cast<std::uint32_t>(present.size());
    std::vector<std::map<SumNode, std::string>> held;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        const GroupRange range = groups_of_rank(groups, rank, ranks);
        Sum sum(range);
        for (std::uint32_t group = 0; group < groups; ++group) {
            if (present[group] && group >= range.begin && group < range.end) {
                sum.of(group) += std::to_string(group);
            }
        }
        held.push_back(sum.take_nodes());
    }
    const SumPlan plan = plan_sum(present, ranks);
    for (const SumStep& step : plan.steps) {
        add_text(held.at(step.to).at(step.node), held.at(step.from).at(step.more));
        held[step.from].erase(step.more);
    }
    std::string left;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        for (const auto& [node, text] : held[rank]) {
            EXPECT_EQ(rank, plan.root);
            left += text;
        }
    }
    EXPECT_EQ(plan.empty, left.empty());
    return left;
}

std::string summed_by_one(const std::vector<bool>& present) {
    Sum sum;
    for (std::uint32_t group = 0; group < present.size(); ++group) {
        if (present[group]) {
            sum.of(group) += std::to_string(group);
        }
    }
    return sum.take();
}

TEST(SumPlan, AddsInTheOrderOfOneRank) {
    EXPECT_EQ(summed_by(2, {true, true, true, true}), "((0 + 1) + (2 + 3))");
    for (std::uint32_t groups = 1; groups <= 24; ++groups) {
        for (std::uint32_t ranks = 2; ranks <= groups; ++ranks) {
            if (groups % ranks == 0) {
                const std::vector<bool> all(groups, true);
                EXPECT_EQ(summed_by(ranks, all), summed_by_one(all)) << groups << " groups, " << ranks << " ranks";
            }
        }
    }
}

TEST(SumPlan, LeavesOutWhatHasNoAddend) {
    for (std::uint32_t groups : {2, 3, 4, 6, 8, 9}) {
        for (std::uint32_t bits = 0; bits < 1U << groups; ++bits) {
            std::vector<bool> present(groups);
            for (std::uint32_t group = 0; group < groups; ++group) {
                present[group] = (bits >> group & 1U) != 0;
            }
            for (std::uint32_t ranks = 2; ranks <= groups; ++ranks) {
                if (groups % ranks == 0) {
                    ASSERT_EQ(summed_by(ranks, present), summed_by_one(present))
                        << groups << " groups, " << ranks << " ranks, present " << bits;
                }
            }
        }
    }
}

}  // namespace
}  // namespace distilld
