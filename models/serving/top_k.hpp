#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace distilld::models {

struct TopEntry {
    float value = 0;
    std::uint32_t id = 0;
};

/// The k greatest of `values` in descending order, equal values by ascending id, into `best` (its memory is reused).
/// libtorch's topk leaves the order of equal values open, and bf16 logits are full of them. k ≤ values.size(); no NaN.
void select_top_k(std::span<const float> values, std::uint32_t k, std::vector<TopEntry>& best);

}  // namespace distilld::models
