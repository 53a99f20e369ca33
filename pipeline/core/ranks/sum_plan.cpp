#include "pipeline/core/ranks/sum_plan.hpp"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

namespace distilld {

namespace {

class SumPlanner {
  public:
    SumPlanner(const std::vector<bool>& present, std::uint32_t ranks, std::uint32_t owner)
        : present_(present),
          groups_of_rank_(present.size() / ranks),
          ranks_(ranks),
          first_of_owner_(owner * groups_of_rank_) {}

    SumPlan plan() {
        const auto levels = static_cast<std::uint32_t>(std::bit_width(present_.size() - 1));
        if (const std::optional<Held> root = sum({levels, 0})) {
            plan_.root = root->rank;
            plan_.total = root->node;
            plan_.rounds = root->round;
            plan_.empty = false;
        }
        return std::move(plan_);
    }

  private:
    struct Held {
        SumNode node;  ///< under which the rank holds the sum
        std::uint32_t rank = 0;
        std::uint32_t round = 0;  ///< the first in which it is whole
    };

    /// nullopt: no addend.
    std::optional<Held> sum(const SumNode& node) {
        const std::uint64_t begin = std::uint64_t{node.place} << node.level;
        const std::uint64_t end = std::min<std::uint64_t>(begin + (std::uint64_t{1} << node.level), present_.size());
        if (begin >= end || std::none_of(at(begin), at(end), [](bool has) { return has; })) {
            return std::nullopt;
        }
        const auto rank = static_cast<std::uint32_t>(begin / groups_of_rank_);
        // The last rank's range has no end, so nodes that reach beyond the groups are its own too.
        if ((end - 1) / groups_of_rank_ == rank && (end - begin == std::uint64_t{1} << node.level || is_last(rank))) {
            return Held{node, rank, 0};
        }
        const std::optional<Held> left = sum({node.level - 1, 2 * node.place});
        const std::optional<Held> right = sum({node.level - 1, 2 * node.place + 1});
        if (!left || !right) {
            return left ? left : right;
        }
        const bool adds_right = ((first_of_owner_ >> (node.level - 1)) & 1U) != 0;
        const Held& to = adds_right ? *right : *left;
        const Held& from = adds_right ? *left : *right;
        const std::uint32_t round = std::max(left->round, right->round);
        plan_.steps.push_back({to.node, from.node, to.rank, from.rank, round});
        return Held{to.node, to.rank, round + 1};
    }

    [[nodiscard]] std::vector<bool>::const_iterator at(std::uint64_t group) const {
        return present_.begin() + static_cast<std::ptrdiff_t>(group);
    }
    [[nodiscard]] bool is_last(std::uint32_t rank) const { return rank + 1 == ranks_; }

    const std::vector<bool>& present_;
    std::uint64_t groups_of_rank_;
    std::uint32_t ranks_;
    std::uint64_t first_of_owner_;
    SumPlan plan_;
};

}  // namespace

GroupRange groups_of_rank(std::uint32_t groups, std::uint32_t rank, std::uint32_t ranks) noexcept {
    const std::uint64_t each = groups / ranks;
    return {rank * each, rank + 1 == ranks ? GroupRange{}.end : (rank + 1) * each};
}

SumPlan plan_sum(const std::vector<bool>& present, std::uint32_t ranks, std::uint32_t owner) {
    return SumPlanner(present, ranks, owner).plan();
}

}  // namespace distilld
