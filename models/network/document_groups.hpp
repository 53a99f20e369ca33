#pragma once

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

/// The number of each position in its document, from 0.
[[nodiscard]] inline std::vector<std::int64_t> numbers_in(const DocumentGroups& documents) {
    std::vector<std::int64_t> numbers;
    numbers.reserve(static_cast<std::size_t>(positions_of(documents)));
    for (const DocumentGroup& group : documents) {
        for (std::int64_t document = 0; document < group.count; ++document) {
            for (std::int64_t number = 0; number < group.length; ++number) {
                numbers.push_back(number);
            }
        }
    }
    return numbers;
}

}  // namespace distilld::models
