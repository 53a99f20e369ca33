#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace distilld::models {

/// A sum of groups of addends. Each group is summed in order; the groups' sums are leaves of a fixed binary tree, in
/// which 2i and 2i + 1 have one parent. A group without addends takes no part, nor does a node without any below it.
/// So the bits are the same if several computers sum neighbouring groups each, and then add their sums along the tree.
/// At most ⌊log₂(groups)⌋ + 1 sums exist at a time. `add(total, more)` adds two.
template <typename Sum, void (*add)(Sum& total, const Sum& more)>
class GroupedSum {
  public:
    /// The running sum of `group`, which is not smaller than those before; `Sum{}` at first.
    [[nodiscard]] Sum& of(std::uint32_t group) {
        while (!nodes_.empty() && end_of_parent(nodes_.back()) <= group) {
            climb();
        }
        if (nodes_.empty() || nodes_.back().level > 0 || nodes_.back().place != group) {
            nodes_.push_back({0, group, Sum{}});
        }
        return nodes_.back().sum;
    }

    /// The sum of all, and none from now on; `Sum{}` if there was none.
    [[nodiscard]] Sum take() {
        while (nodes_.size() > 1) {
            climb();
        }
        Sum total = nodes_.empty() ? Sum{} : std::move(nodes_.front().sum);
        nodes_.clear();
        return total;
    }

  private:
    struct Node {
        std::uint32_t level;
        std::uint32_t place;  ///< among the nodes of its level
        Sum sum;
    };

    /// The first group that is not below the node's parent.
    [[nodiscard]] static std::uint64_t end_of_parent(const Node& node) {
        return (std::uint64_t{node.place | 1U} + 1) << node.level;
    }

    /// The last node becomes its parent, with its sibling if there is one.
    void climb() {
        Node& last = nodes_.back();
        const std::size_t count = nodes_.size();
        if (count > 1 && nodes_[count - 2].level == last.level && nodes_[count - 2].place == (last.place ^ 1U)) {
            add(nodes_[count - 2].sum, last.sum);
            nodes_.pop_back();
        }
        ++nodes_.back().level;
        nodes_.back().place /= 2;
    }

    std::vector<Node> nodes_;  // in the order of their groups
};

}  // namespace distilld::models
