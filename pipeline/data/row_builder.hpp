#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "pipeline/data/dataset.hpp"
#include "pipeline/data/growing_bytes.hpp"
#include "pipeline/data/jsonl_document.hpp"
#include "pipeline/data/row_dataset.hpp"
#include "pipeline/data/token_draft.hpp"

namespace distilld {

/// The rows of a dataset, or of one teacher's part of it, as they were built.
struct BuiltRows {
    TokenRows rows;  ///< which may be none
    /// Of a mixed dataset: the document in which each row begins, by its number.
    std::vector<std::uint64_t> documents;
};

/// Gathers the documents of one dataset into one token array and cuts its rows: add() for each document, finish().
/// `options` and `draft`, into whose files tokens go and which may be null, must outlive it. One thread.
class RowBuilder {
  public:
    /// `name` begins the names of the files.
    RowBuilder(const Tokenizer* tokenizer, const DatasetOptions& options, TokenDraft* draft, const std::string& name);

    /// `number` counts the documents of the file. `read_share` is the part of it read so far, in (0, 1], or 0 when
    /// unknown.
    Result<void> add(const Document& document, std::uint64_t number, double read_share);

    /// The documents are all there. Once.
    Result<BuiltRows> finish();

  private:
    void reserve(std::uint64_t needed, double read_share);
    Result<void> separate(const Document& document);
    Result<void> append(std::span<const std::int32_t> ids, std::span<const std::int32_t> labels, bool own_labels);
    Result<void> add_row(std::uint64_t begin, std::uint64_t length);
    Result<void> cut(const KeptArray<std::int32_t>& labels);
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
    GrowingBytes ids_;
    GrowingBytes labels_;
    GrowingBytes rows_;
    std::uint64_t positions_ = 0;  ///< of all rows
    std::uint64_t read_ = 0;       ///< of all documents, where they are not joined
    std::vector<Begin> begins_;    ///< of documents, where several teachers' rows are to be put in one order
    bool has_labels_ = false;
    bool has_text_ = false;
    bool names_teachers_ = false;
    bool previous_from_text_ = false;
};

}  // namespace distilld
