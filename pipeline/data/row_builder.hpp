#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "pipeline/data/column_builder.hpp"
#include "pipeline/data/dataset.hpp"
#include "pipeline/data/jsonl_document.hpp"
#include "pipeline/data/row_dataset.hpp"
#include "pipeline/data/token_draft.hpp"

namespace distilld {

/// The rows of a dataset, or of one teacher's part of it.
struct BuiltRows {
    TokenRows rows;  ///< may be empty
    /// For a mixed dataset: the number of the document in which each row begins.
    std::vector<std::uint64_t> documents;
};

/// Collects documents in one token array and splits it into rows: add() for each document, then finish(). Tokens go
/// into files of `draft`, unless it is null. `options` and `draft` must outlive this. One thread.
class RowBuilder {
  public:
    /// `name` is the prefix of the files' names.
    RowBuilder(const Tokenizer* tokenizer, const DatasetOptions& options, TokenDraft* draft, const std::string& name);

    /// `number` counts the documents of the file. `read_share` is the share of it read so far, in (0, 1], or 0 if
    /// unknown.
    Result<void> add(const Document& document, std::uint64_t number, double read_share);

    /// Call once, after the last document.
    Result<BuiltRows> finish();

  private:
    void reserve(std::uint64_t needed, double read_share);
    Result<void> separate(const Document& document);
    Result<void> append(std::span<const std::int32_t> ids, std::span<const std::int32_t> labels, bool own_labels);
    Result<void> add_row(std::uint64_t begin, std::uint64_t length);
    Result<void> cut(const ColumnArray<std::int32_t>& labels);
    [[nodiscard]] std::vector<std::uint64_t> documents_of(std::span<const DatasetRow> rows) const;
    [[nodiscard]] std::uint64_t token_count() const { return ids_.size() / sizeof(std::int32_t); }

    struct Begin {
        std::uint64_t token = 0;
        std::uint64_t document = 0;
    };

    const DatasetOptions& options_;
    bool in_files_;
    std::optional<std::int32_t> separator_;
    std::int32_t last_id_ = 0;
    ColumnBuilder ids_;
    ColumnBuilder labels_;
    ColumnBuilder rows_;
    std::uint64_t positions_ = 0;  ///< of all rows
    std::uint64_t read_ = 0;       ///< of all documents, if they are not joined
    std::vector<Begin> begins_;    ///< of documents, if rows of several teachers must be ordered
    bool has_labels_ = false;
    bool has_text_ = false;
    bool names_teachers_ = false;
    bool previous_from_text_ = false;
};

}  // namespace distilld
