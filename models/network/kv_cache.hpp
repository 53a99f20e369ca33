#pragma once

#include <torch/types.h>

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

/// Has room for the positions up to `end`, of which the first `length` keep their numbers. `keys`: [.., key heads, D],
/// for their sizes and kind.
inline void make_room(LayerCache& cache, std::int64_t length, std::int64_t end, const torch::Tensor& keys) {
    constexpr std::int64_t kBlock = 64;
    if (cache.keys.defined() && cache.keys.size(1) >= end) {
        return;
    }
    const std::int64_t grown = std::max(end, length + length / 2);
    const std::int64_t capacity = (grown + kBlock - 1) / kBlock * kBlock;
    for (torch::Tensor* held : {&cache.keys, &cache.values}) {
        torch::Tensor larger = torch::empty({keys.size(-2), capacity, keys.size(-1)}, keys.options());
        if (held->defined()) {
            larger.narrow(1, 0, length).copy_(held->narrow(1, 0, length));
        }
        *held = std::move(larger);
    }
}

/// Writes [n, key heads, D] behind the first `length` positions, and returns all of them, [key heads, length + n, D].
inline std::pair<torch::Tensor, torch::Tensor> append(LayerCache& cache, std::int64_t length, const torch::Tensor& keys,
                                                      const torch::Tensor& values) {
    const std::int64_t end = length + keys.size(0);
    make_room(cache, length, end, keys);
    cache.keys.narrow(1, length, keys.size(0)).copy_(keys.transpose(0, 1));
    cache.values.narrow(1, length, values.size(0)).copy_(values.transpose(0, 1));
    return {cache.keys.narrow(1, 0, end), cache.values.narrow(1, 0, end)};
}

}  // namespace distilld::models
