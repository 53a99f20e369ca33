#include "pipeline/core/ranks/sum_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "models/network/grouped_sum.hpp"

namespace distilld {
namespace {

/// The same for both orders, as for numbers.
void add_text(std::string& total, const std::string& more) {
    total = "(" + std::min(total, more) + " + " + std::max(total, more) + ")";
}

using Sum = models::GroupedSum<std::string, add_text>;

/// What `ranks` ranks sum along the plan, as text.
std::string summed_by(std::uint32_t ranks, const std::vector<bool>& present, std::uint32_t owner = 0) {
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
    const SumPlan plan = plan_sum(present, ranks, owner);
    std::map<std::pair<std::uint32_t, SumNode>, std::uint32_t> whole_from;  // the first round that may use a sum
    for (const SumStep& step : plan.steps) {
        EXPECT_GE(step.round, (whole_from[{step.to, step.node}]));
        EXPECT_GE(step.round, (whole_from[{step.from, step.more}]));
        EXPECT_LT(step.round, plan.rounds);
        whole_from[{step.to, step.node}] = step.round + 1;
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
                for (std::uint32_t owner = 0; owner < ranks; ++owner) {
                    EXPECT_EQ(summed_by(ranks, all, owner), summed_by_one(all))
                        << groups << " groups, " << ranks << " ranks, owner " << owner;
                    EXPECT_EQ(plan_sum(all, ranks, owner).root, owner) << groups << " groups, " << ranks << " ranks";
                }
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
                for (std::uint32_t owner = 0; groups % ranks == 0 && owner < ranks; ++owner) {
                    ASSERT_EQ(summed_by(ranks, present, owner), summed_by_one(present))
                        << groups << " groups, " << ranks << " ranks, owner " << owner << ", present " << bits;
                }
            }
        }
    }
}

TEST(SumPlan, SharesTheWork) {
    for (const auto& [ranks, rounds] : {std::pair(8U, 3U), {64U, 6U}, {512U, 9U}}) {
        std::map<std::uint32_t, std::uint32_t> additions;
        std::map<std::uint32_t, std::uint32_t> sends;
        for (std::uint32_t owner = 0; owner < ranks; ++owner) {
            const SumPlan plan = plan_sum(std::vector<bool>(ranks, true), ranks, owner);
            EXPECT_EQ(plan.rounds, rounds);
            for (const SumStep& step : plan.steps) {
                ++additions[step.to];
                ++sends[step.from];
            }
        }
        for (std::uint32_t rank = 0; rank < ranks; ++rank) {
            EXPECT_EQ(additions[rank], ranks - 1) << rank;
            EXPECT_EQ(sends[rank], ranks - 1) << rank;
        }
    }
}

}  // namespace
}  // namespace distilld
