#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "pipeline/data/dataset.hpp"

namespace distilld {

/// The rows of one of several teachers: the same dataset, hash included, as from a file of only its documents.
struct DatasetPart {
    std::string teacher;
    std::shared_ptr<const Dataset> rows;
};

/// A row of a MixedDataset: its part, and its number there.
struct PartRow {
    std::uint32_t part = 0;
    std::uint64_t row = 0;
};

/// A row, and the number of the document of the whole dataset in which it begins.
struct PlacedRow {
    std::uint64_t document = 0;
    PartRow row;
};

/// Sorts rows by their beginnings. Rows that begin in the same document are of one part.
[[nodiscard]] std::vector<PartRow> in_order(std::vector<PlacedRow> rows);

/// A dataset with documents of several teachers. A row has documents of one teacher; rows are in the order of their
/// beginnings in the file. The hash covers the teachers' names, their parts and that order.
class MixedDataset final : public Dataset {
  public:
    /// `rows`: every row of every part once.
    MixedDataset(std::vector<DatasetPart> parts, std::vector<PartRow> rows);

    [[nodiscard]] const std::vector<DatasetPart>& parts() const noexcept { return parts_; }
    [[nodiscard]] PartRow place_of(std::uint64_t row) const { return rows_.at(row); }

    [[nodiscard]] std::uint64_t row_count() const override { return rows_.size(); }
    [[nodiscard]] std::uint64_t token_count() const override;
    [[nodiscard]] std::uint64_t tokens_read() const override;
    [[nodiscard]] const std::string& hash() const override { return hash_; }
    [[nodiscard]] TokenBatch batch(std::uint64_t number, const std::vector<std::uint64_t>& rows) const override;
    [[nodiscard]] std::uint32_t row_length(std::uint64_t row) const override;
    [[nodiscard]] std::uint64_t target_tokens(std::uint64_t row) const override;
    [[nodiscard]] bool has_text() const override;

  private:
    std::vector<DatasetPart> parts_;
    std::vector<PartRow> rows_;
    std::string hash_;
};

/// Like load_jsonl_dataset(), for documents that name one of `options.teachers` ({"teacher": "math"}), which must not
/// be empty; documents without a name belong to kDefaultTeacher. Documents are packed only with those of the same
/// teacher. An unknown name is an error, as is, with `every_teacher`, a teacher without a row.
Result<std::shared_ptr<const MixedDataset>> load_mixed_dataset(std::span<const std::filesystem::path> files,
                                                               const Tokenizer* tokenizer,
                                                               const DatasetOptions& options,
                                                               bool every_teacher = true);

}  // namespace distilld
