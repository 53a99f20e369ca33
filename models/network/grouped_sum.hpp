#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "pipeline/core/ranks/sum_plan.hpp"

namespace distilld::models {

/// A sum of groups of addends. Each group is summed in order; the groups' sums are leaves of a fixed binary tree, in
/// which 2i and 2i + 1 have one parent. A group without addends takes no part, nor does a node without any below it.
/// So the bits are the same if several computers sum neighbouring groups each, and then add their sums along the tree.
/// At most ⌊log₂(groups)⌋ + 1 sums exist at a time, twice as many for a range that is not a node's. `add(total, more)`
/// adds two.
template <typename Sum, void (*add)(Sum& total, const Sum& more)>
class GroupedSum {
  public:
    /// Sums the groups of `range`, and no node with others below it.
    explicit GroupedSum(GroupRange range = {}) : range_(range) {}

    /// The running sum of `group`, which is not smaller than those before; `Sum{}` at first.
    [[nodiscard]] Sum& of(std::uint32_t group) {
        while (!nodes_.empty() && may_climb() && end_of_parent(nodes_.back().at) <= group) {
            climb();
        }
        if (nodes_.empty() || nodes_.back().at != SumNode{0, group}) {
            nodes_.push_back({{0, group}, Sum{}});
        }
        return nodes_.back().sum;
    }

    /// The sum of all groups, and none from now on; `Sum{}` if there was none.
    [[nodiscard]] Sum take() {
        while (nodes_.size() > 1) {
            climb();
        }
        Sum total = nodes_.empty() ? Sum{} : std::move(nodes_.front().sum);
        nodes_.clear();
        return total;
    }

    /// The sums of the largest nodes within a range that is not all groups, and none from now on.
    [[nodiscard]] std::map<SumNode, Sum> take_nodes() {
        while (!nodes_.empty() && may_climb()) {
            climb();
        }
        std::map<SumNode, Sum> taken;
        for (Node& node : nodes_) {
            taken.emplace(node.at, std::move(node.sum));
        }
        nodes_.clear();
        return taken;
    }

  private:
    struct Node {
        SumNode at;
        Sum sum;
    };

    /// The first group that is not below the node's parent.
    [[nodiscard]] static std::uint64_t end_of_parent(const SumNode& node) {
        return (std::uint64_t{node.place | 1U} + 1) << node.level;
    }

    /// Whether the last node's parent lies within the range.
    [[nodiscard]] bool may_climb() const {
        const SumNode& last = nodes_.back().at;
        const std::uint64_t begin = std::uint64_t{last.place & ~1U} << last.level;
        return begin >= range_.begin && end_of_parent(last) <= range_.end;
    }

    /// The last node becomes its parent, with its sibling if there is one.
    void climb() {
        const SumNode last = nodes_.back().at;
        const std::size_t count = nodes_.size();
        if (count > 1 && nodes_[count - 2].at == SumNode{last.level, last.place ^ 1U}) {
            add(nodes_[count - 2].sum, nodes_.back().sum);
            nodes_.pop_back();
        }
        nodes_.back().at = {last.level + 1, last.place / 2};
    }

    GroupRange range_;
    std::vector<Node> nodes_;  // in the order of their groups
};

}  // namespace distilld::models
