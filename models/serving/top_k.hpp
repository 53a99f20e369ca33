#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace distilld::models {

struct TopEntry {
    float value = 0;
    std::uint32_t id = 0;
};

/// Orders the better entry first: the larger value, of equal ones the smaller id.
[[nodiscard]] inline bool better(const TopEntry& a, const TopEntry& b) noexcept {
    return a.value > b.value || (a.value == b.value && a.id < b.id);
}

/// Puts the k largest of `values` in descending order, ties by ascending id, into `best` (reusing its memory).
/// libtorch's topk leaves the order of ties open, and bf16 logits are full of them. k ≤ values.size(); no NaN.
void select_top_k(std::span<const float> values, std::uint32_t k, std::vector<TopEntry>& best);

}  // namespace distilld::models
