#include "models/serving/top_k.hpp"

#include <algorithm>
#include <cstddef>

namespace distilld::models {

void select_top_k(std::span<const float> values, std::uint32_t k, std::vector<TopEntry>& best) {
    best.clear();
    for (std::uint32_t id = 0; id < k; ++id) {
        best.push_back({values[id], id});
    }
    if (best.empty()) {
        return;
    }
    // As a heap order, better() keeps the worst on top.
    std::make_heap(best.begin(), best.end(), better);
    const auto consider = [&](std::size_t index) {
        // Ids come in ascending order, so an equal value never displaces an existing one.
        if (values[index] > best.front().value) {
            std::pop_heap(best.begin(), best.end(), better);
            best.back() = {values[index], static_cast<std::uint32_t>(index)};
            std::push_heap(best.begin(), best.end(), better);
        }
    };
    // Few values pass once the heap is warm, so one vectorised comparison skips whole blocks.
    constexpr std::size_t kBlock = 32;
    std::size_t index = k;
    for (; index + kBlock <= values.size(); index += kBlock) {
        const float* block = values.data() + index;
        const float threshold = best.front().value;
        unsigned any = 0;
        for (std::size_t lane = 0; lane < kBlock; ++lane) {
            any |= static_cast<unsigned>(block[lane] > threshold);
        }
        if (any != 0) {
            for (std::size_t lane = 0; lane < kBlock; ++lane) {
                consider(index + lane);
            }
        }
    }
    for (; index < values.size(); ++index) {
        consider(index);
    }
    std::sort_heap(best.begin(), best.end(), better);
}

}  // namespace distilld::models
