#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "pipeline/data/dataset.hpp"
#include "pipeline/data/kept_array.hpp"

namespace distilld {

/// Inputs [begin, begin + length) of the token array; the last input's target is token begin + length.
struct DatasetRow {
    std::uint64_t begin = 0;
    std::uint32_t length = 0;
    std::uint32_t unused = 0;  ///< rows lie in files
};

/// The tokens of all documents, one after the other, and the rows that they are cut into.
struct TokenRows {
    KeptArray<std::int32_t> ids;
    KeptArray<std::int32_t> labels;  ///< empty: the ids are the labels
    KeptArray<DatasetRow> rows;
    std::uint32_t sequence_length = 0;
    bool trims = false;  ///< a batch has the columns of its longest row, not sequence_length
    bool has_text = false;
    bool names_teachers = false;
    std::uint64_t token_count = 0;  ///< of all rows together
    std::uint64_t tokens_read = 0;  ///< Dataset::tokens_read()
    std::string hash;               ///< see hash_of()

    [[nodiscard]] const KeptArray<std::int32_t>& targets() const { return labels.empty() ? ids : labels; }
};

/// Dataset::hash(), of its tokens, rows and sequence length.
[[nodiscard]] std::string hash_of(const TokenRows& rows);

/// A dataset of rows that lie in one array of tokens; `rows` has its hash, and no row reaches beyond the tokens.
[[nodiscard]] std::unique_ptr<Dataset> make_row_dataset(TokenRows rows);

}  // namespace distilld
