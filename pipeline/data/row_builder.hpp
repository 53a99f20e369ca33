#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "pipeline/data/dataset.hpp"
#include "pipeline/data/jsonl_document.hpp"
#include "pipeline/data/memory_dataset.hpp"

namespace distilld {

/// Gathers the documents of one dataset into one token array and cuts its rows: add() for each document, cut(),
/// finish(). `options` must outlive it. One thread.
class RowBuilder {
  public:
    RowBuilder(const Tokenizer* tokenizer, const DatasetOptions& options);

    /// `number` counts the documents of the file. `read_share` is the part of it read so far, in (0, 1], or 0 when
    /// unknown.
    Result<void> add(const Document& document, std::uint64_t number, double read_share);

    /// The documents are all there: cuts the rows.
    void cut();

    /// The document in which each row begins, by its number; of mixed datasets. After cut(), before finish().
    [[nodiscard]] std::vector<std::uint64_t> documents_of_rows() const;

    /// After cut(). Null: there is no row.
    std::unique_ptr<Dataset> finish();

  private:
    void reserve(std::size_t needed, double read_share);
    void append(std::span<const std::int32_t> ids, std::span<const std::int32_t> labels, bool own_labels);
    void add_row(std::uint64_t begin, std::uint64_t length);

    struct Begin {
        std::uint64_t token = 0;
        std::uint64_t document = 0;
    };

    const DatasetOptions& options_;
    std::optional<std::int32_t> separator_;
    DatasetTokens tokens_;
    std::vector<DatasetRow> rows_;
    std::vector<Begin> begins_;  ///< of documents, where several teachers' rows are to be put in one order
    bool has_labels_ = false;
    bool has_text_ = false;
    bool names_teachers_ = false;
    bool previous_from_text_ = false;
};

}  // namespace distilld
