#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace distilld::models {

/// The rotated keys and the values of a sequence's positions in one layer.
struct LayerCache {
    torch::Tensor keys;    ///< [key heads, capacity, D] in the compute dtype, on the layer's device; undefined at first
    torch::Tensor values;  ///< likewise
};

/// What a sequence has been read up to. Grows in blocks, so that a position is copied O(log n) times.
struct KvCache {
    std::vector<LayerCache> layers{};
    std::int64_t length = 0;  ///< positions of every layer
};

/// Some new positions of a sequence.
struct Extension {
    KvCache* cache = nullptr;
    std::int64_t count = 0;  ///< at least 1
};

/// Writes [key heads, n, D] behind the first `length` positions, and returns all of them.
inline std::pair<torch::Tensor, torch::Tensor> append(LayerCache& cache, std::int64_t length, const torch::Tensor& keys,
                                                      const torch::Tensor& values) {
    constexpr std::int64_t kBlock = 64;
    const std::int64_t end = length + keys.size(1);
    if (!cache.keys.defined() || cache.keys.size(1) < end) {
        const std::int64_t grown = std::max(end, length + length / 2);
        const std::int64_t capacity = (grown + kBlock - 1) / kBlock * kBlock;
        for (torch::Tensor* held : {&cache.keys, &cache.values}) {
            torch::Tensor larger = torch::empty({keys.size(0), capacity, keys.size(2)}, keys.options());
            if (held->defined()) {
                larger.narrow(1, 0, length).copy_(held->narrow(1, 0, length));
            }
            *held = std::move(larger);
        }
    }
    cache.keys.narrow(1, length, keys.size(1)).copy_(keys);
    cache.values.narrow(1, length, values.size(1)).copy_(values);
    return {cache.keys.narrow(1, 0, end), cache.values.narrow(1, 0, end)};
}

}  // namespace distilld::models
