#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace distilld::models {

/// Consecutive documents of equal length.
struct DocumentGroup {
    std::int64_t count = 0;
    std::int64_t length = 0;  ///< positions per document
};

/// All documents of a micro-batch without padding. Empty: rows are padded, one document per row.
using DocumentGroups = std::vector<DocumentGroup>;

[[nodiscard]] inline std::int64_t positions_of(const DocumentGroups& documents) noexcept {
    std::int64_t positions = 0;
    for (const DocumentGroup& group : documents) {
        positions += group.count * group.length;
    }
    return positions;
}

/// [N] int64: the number of each position in its document, from 0. Made on the device, without a copy.
[[nodiscard]] inline torch::Tensor numbers_in(const DocumentGroups& documents, const torch::Device& device) {
    const auto options = torch::TensorOptions().dtype(torch::kInt64).device(device);
    std::vector<torch::Tensor> parts;
    parts.reserve(documents.size());
    for (const DocumentGroup& group : documents) {
        parts.push_back(torch::arange(group.length, options).repeat({group.count}));
    }
    return torch::cat(parts);
}

}  // namespace distilld::models
