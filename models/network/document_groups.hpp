#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

namespace distilld::models {

/// Documents of one length that lie one after the other.
struct DocumentGroup {
    std::int64_t count = 0;
    std::int64_t length = 0;  ///< positions of each
};

/// All documents of a micro-batch, which has nothing beside them. Empty: its rows are padded and of one document each.
using DocumentGroups = std::vector<DocumentGroup>;

[[nodiscard]] inline std::int64_t positions_of(const DocumentGroups& documents) noexcept {
    std::int64_t positions = 0;
    for (const DocumentGroup& group : documents) {
        positions += group.count * group.length;
    }
    return positions;
}

/// [N] int64: the number of each position in its document, from 0. Made on the device, which so waits for no copy.
[[nodiscard]] torch::Tensor numbers_in(const DocumentGroups& documents, const torch::Device& device);

}  // namespace distilld::models
