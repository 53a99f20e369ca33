#include "pipeline/data/packed_dataset.hpp"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/sha256.hpp"
#include "pipeline/core/row_packing.hpp"

namespace distilld {

namespace {

// The hashed fields are part of a checkpoint's identity: change them only together with the tag.
std::string hash_of(const Dataset& documents, const PackedRows& packed) {
    constexpr std::string_view kTag = "distilld dataset of documents side by side 1\n";
    Sha256 hash;
    hash.add(std::span<const char>(kTag.data(), kTag.size()));
    hash.add(std::span<const char>(documents.hash().data(), documents.hash().size()));
    hash.add(std::uint64_t{packed.begins.size()});
    hash.add(std::span<const std::uint64_t>(packed.begins));
    hash.add(std::span<const std::uint64_t>(packed.documents));
    return hash.hex();
}

std::vector<std::uint32_t> lengths_of(const Dataset& documents) {
    std::vector<std::uint32_t> lengths(documents.row_count());
    for (std::uint64_t row = 0; row < lengths.size(); ++row) {
        lengths[row] = documents.row_length(row);
    }
    return lengths;
}

class PackedDataset final : public Dataset {
  public:
    PackedDataset(std::shared_ptr<const Dataset> documents, std::uint32_t sequence_length)
        : documents_(std::move(documents)),
          sequence_length_(sequence_length),
          packed_(pack_rows(lengths_of(*documents_), sequence_length)),
          hash_(hash_of(*documents_, packed_)) {}

    [[nodiscard]] std::uint64_t row_count() const override { return packed_.row_count(); }
    [[nodiscard]] std::uint64_t token_count() const override { return documents_->token_count(); }
    [[nodiscard]] std::uint64_t tokens_read() const override { return documents_->tokens_read(); }
    [[nodiscard]] const std::string& hash() const override { return hash_; }
    [[nodiscard]] bool has_text() const override { return documents_->has_text(); }
    [[nodiscard]] bool names_teachers() const override { return documents_->names_teachers(); }
    [[nodiscard]] const Dataset* teacher_documents() const override { return documents_->teacher_documents(); }
    [[nodiscard]] const Dataset& asked_about() const override { return documents_->asked_about(); }

    /// The first document of a row, for the order of the rows of several teachers.
    [[nodiscard]] std::uint64_t first_document(std::uint64_t row) const { return packed_.row(row).front(); }

    [[nodiscard]] std::uint32_t row_length(std::uint64_t row) const override {
        std::uint32_t length = 0;
        for (const std::uint64_t document : packed_.row(row)) {
            length += documents_->row_length(document);
        }
        return length;
    }

    [[nodiscard]] std::uint64_t target_tokens(std::uint64_t row) const override {
        std::uint64_t tokens = 0;
        for (const std::uint64_t document : packed_.row(row)) {
            tokens += documents_->target_tokens(document);
        }
        return tokens;
    }

    [[nodiscard]] TokenBatch batch(std::uint64_t number, const std::vector<std::uint64_t>& rows) const override {
        TokenBatch batch;
        batch.number = number;
        batch.rows = static_cast<std::uint32_t>(rows.size());
        batch.row_ids = rows;
        batch.columns = sequence_length_;
        for (const std::uint64_t row : rows) {
            batch.lengths.push_back(static_cast<std::int32_t>(row_length(row)));
        }
        batch.input_ids.resize(rows.size() * batch.columns, 0);
        batch.labels.resize(rows.size() * batch.columns, kIgnoredLabel);
        for (std::uint32_t b = 0; b < batch.rows; ++b) {
            std::uint32_t begin = 0;
            for (const std::uint64_t document : packed_.row(rows[b])) {
                begin += place(document, {b, begin, 0, document}, batch);
            }
        }
        return batch;
    }

  private:
    /// Copies one document and returns its positions. A batch of all documents would be padded to the longest.
    std::uint32_t place(std::uint64_t document, RowDocument where, TokenBatch& batch) const {
        const TokenBatch one = documents_->batch(batch.number, {document});
        where.length = static_cast<std::uint32_t>(one.lengths.front());
        const auto first = static_cast<std::ptrdiff_t>(std::size_t{where.row} * batch.columns + where.begin);
        std::copy_n(one.input_ids.begin(), where.length, batch.input_ids.begin() + first);
        std::copy_n(one.labels.begin(), where.length, batch.labels.begin() + first);
        batch.target_tokens += one.target_tokens;
        batch.documents.push_back(where);
        return where.length;
    }

    std::shared_ptr<const Dataset> documents_;
    std::uint32_t sequence_length_;
    PackedRows packed_;
    std::string hash_;
};

}  // namespace

std::shared_ptr<const Dataset> pack_documents(std::shared_ptr<const Dataset> documents, std::uint32_t sequence_length) {
    return std::make_shared<const PackedDataset>(std::move(documents), sequence_length);
}

std::shared_ptr<const MixedDataset> pack_documents(const MixedDataset& documents, std::uint32_t sequence_length) {
    std::vector<std::vector<std::uint64_t>> in_whole(documents.parts().size());  // [part][row]: the row in `documents`
    for (std::uint64_t row = 0; row < documents.row_count(); ++row) {
        const PartRow place = documents.place_of(row);
        std::vector<std::uint64_t>& of_part = in_whole[place.part];
        of_part.resize(std::max<std::size_t>(of_part.size(), place.row + 1));
        of_part[place.row] = row;
    }
    std::vector<PlacedRow> placed;
    std::vector<DatasetPart> parts;
    for (std::uint32_t part = 0; part < documents.parts().size(); ++part) {
        const DatasetPart& of_teacher = documents.parts()[part];
        auto packed = std::make_shared<const PackedDataset>(of_teacher.rows, sequence_length);
        for (std::uint64_t row = 0; row < packed->row_count(); ++row) {
            placed.push_back({in_whole[part].at(packed->first_document(row)), {part, row}});
        }
        parts.push_back({of_teacher.teacher, std::move(packed)});
    }
    return std::make_shared<const MixedDataset>(std::move(parts), in_order(std::move(placed)));
}

}  // namespace distilld
