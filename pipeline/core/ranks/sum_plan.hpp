#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <vector>

namespace distilld {

/// Groups [begin, end) of a step's micro-batches.
struct GroupRange {
    std::uint64_t begin = 0;
    std::uint64_t end = std::uint64_t{1} << 32U;
};

/// The groups that are summed by rank `rank` of `ranks`, where `ranks` divides `groups`. The last rank's range has no
/// end: no group follows.
[[nodiscard]] GroupRange groups_of_rank(std::uint32_t groups, std::uint32_t rank, std::uint32_t ranks) noexcept;

/// A node of the tree in which the sums of groups are added: its leaves are groups [place << level,
/// (place + 1) << level).
struct SumNode {
    std::uint32_t level = 0;
    std::uint32_t place = 0;  ///< among the nodes of its level

    friend auto operator<=>(const SumNode&, const SumNode&) = default;
};

/// The sum that rank `to` holds as `node` += the one that rank `from` holds as `more`, which that rank sends unless it
/// is the same. The result is still held as `node`.
struct SumStep {
    SumNode node;
    SumNode more;
    std::uint32_t to = 0;
    std::uint32_t from = 0;
    std::uint32_t round = 0;  ///< needs only results of earlier rounds
};

/// How ranks add what each has summed over its own range of groups, so that the result has the bits of one rank that
/// sums all groups.
struct SumPlan {
    std::vector<SumStep> steps;  ///< in this order
    std::uint32_t rounds = 0;
    std::uint32_t root = 0;  ///< the rank that holds the total afterwards
    SumNode total;           ///< and as what
    bool empty = true;       ///< there is no addend
};

/// The total among the sums that the root holds after the steps.
template <class Sum>
[[nodiscard]] Sum& total_of(const SumPlan& plan, std::map<SumNode, Sum>& held) {
    return plan.steps.empty() ? held.begin()->second : held.at(plan.total);  // one sum, if none was added
}

/// `present[g]`: group g has addends. `owner`: the rank that should hold the total, if it has addends. Which of two
/// ranks adds depends on it, so that plans with different owners share the work (recursive halving: Thakur et al.,
/// "Optimization of Collective Communication Operations in MPICH", 2005). The bits do not: a + b is b + a.
[[nodiscard]] SumPlan plan_sum(const std::vector<bool>& present, std::uint32_t ranks, std::uint32_t owner = 0);

}  // namespace distilld
