#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "pipeline/data/column.hpp"
#include "pipeline/data/dataset.hpp"

namespace distilld {

/// Inputs [begin, begin + length) of the token array; the last input's target is token begin + length.
struct DatasetRow {
    std::uint64_t begin = 0;
    std::uint32_t length = 0;
    std::uint32_t unused = 0;  ///< padding: rows are stored in files
};

/// The tokens of all documents, concatenated, and their rows.
struct TokenRows {
    ColumnArray<std::int32_t> ids;
    ColumnArray<std::int32_t> labels;  ///< empty: the ids are the labels
    ColumnArray<DatasetRow> rows;
    std::uint32_t sequence_length = 0;
    bool trims = false;  ///< a batch has the columns of its longest row, not sequence_length
    bool has_text = false;
    bool names_teachers = false;
    std::uint64_t token_count = 0;          ///< of all rows together
    std::uint64_t tokens_read = 0;          ///< Dataset::tokens_read()
    std::string hash;                       ///< see hash_of()
    std::unique_ptr<TokenRows> of_teacher;  ///< Dataset::teacher_documents()

    [[nodiscard]] const ColumnArray<std::int32_t>& targets() const { return labels.empty() ? ids : labels; }
};

/// Computes Dataset::hash() from the tokens, rows and sequence length, and the hash of `of_teacher`.
[[nodiscard]] std::string hash_of(const TokenRows& rows);

/// A dataset of rows in one array of tokens. The hashes must be set, and no row may reach beyond the tokens.
[[nodiscard]] std::unique_ptr<Dataset> make_row_dataset(TokenRows rows);

}  // namespace distilld
