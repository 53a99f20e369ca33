#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "pipeline/data/dataset.hpp"

namespace distilld {

/// Inputs [begin, begin + length) of the token array; the last input's target is token begin + length.
struct DatasetRow {
    std::uint64_t begin = 0;
    std::uint32_t length = 0;
};

/// The tokens of all documents, one after the other.
struct DatasetTokens {
    std::vector<std::int32_t> ids;
    std::vector<std::int32_t> labels;  ///< empty: the ids are the labels

    [[nodiscard]] std::span<const std::int32_t> targets() const { return labels.empty() ? ids : labels; }
};

struct MemoryRows {
    DatasetTokens tokens;
    std::vector<DatasetRow> rows;
    std::uint32_t sequence_length = 0;
    bool trims = false;  ///< a batch has the columns of its longest row, not sequence_length
    bool has_text = false;
    bool names_teachers = false;
};

/// A dataset of rows that lie in one array of tokens.
[[nodiscard]] std::unique_ptr<Dataset> make_memory_dataset(MemoryRows rows);

}  // namespace distilld
