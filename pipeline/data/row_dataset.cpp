#include "pipeline/data/row_dataset.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "base/sha256.hpp"

namespace distilld {

namespace {

static_assert(std::endian::native == std::endian::little, "the dataset hash is over little-endian integers");

class RowDataset final : public Dataset {
  public:
    explicit RowDataset(TokenRows rows) : own_(std::move(rows)) {
        if (own_.of_teacher) {
            of_teacher_ = make_row_dataset(std::move(*own_.of_teacher));
        }
    }

    std::uint64_t row_count() const override { return own_.rows.size(); }
    std::uint64_t token_count() const override { return own_.token_count; }
    std::uint64_t tokens_read() const override { return own_.tokens_read; }
    const std::string& hash() const override { return own_.hash; }
    bool has_text() const override { return own_.has_text; }
    bool names_teachers() const override { return own_.names_teachers; }
    std::uint32_t row_length(std::uint64_t row) const override { return at(row).length; }
    const Dataset* teacher_documents() const override { return of_teacher_.get(); }

    TokenBatch batch(std::uint64_t number, const std::vector<std::uint64_t>& rows) const override {
        TokenBatch batch;
        batch.number = number;
        batch.rows = static_cast<std::uint32_t>(rows.size());
        batch.columns = columns_of(rows);
        batch.input_ids.resize(rows.size() * batch.columns, 0);
        batch.labels.resize(rows.size() * batch.columns, kIgnoredLabel);
        batch.lengths.reserve(rows.size());
        batch.row_ids = rows;
        for (std::size_t b = 0; b < rows.size(); ++b) {
            const DatasetRow& row = at(rows[b]);
            const auto out = static_cast<std::ptrdiff_t>(b * batch.columns);
            std::ranges::copy(own_.ids.all().subspan(row.begin, row.length), batch.input_ids.begin() + out);
            const auto targets = targets_of(row);
            std::ranges::copy(targets, batch.labels.begin() + out);
            batch.target_tokens += count_targets(targets);
            batch.lengths.push_back(static_cast<std::int32_t>(row.length));
        }
        return batch;
    }

    std::uint64_t target_tokens(std::uint64_t row) const override {
        const DatasetRow& found = at(row);
        return own_.labels.empty() ? found.length : count_targets(targets_of(found));
    }

  private:
    [[nodiscard]] const DatasetRow& at(std::uint64_t row) const {
        const auto rows = own_.rows.all();
        if (row >= rows.size()) {
            throw std::out_of_range("row " + std::to_string(row) + " of " + std::to_string(rows.size()));
        }
        return rows[row];
    }

    [[nodiscard]] std::span<const std::int32_t> targets_of(const DatasetRow& row) const {
        return own_.targets().all().subspan(row.begin + 1, row.length);
    }

    static std::uint64_t count_targets(std::span<const std::int32_t> targets) {
        return targets.size() - static_cast<std::uint64_t>(std::ranges::count(targets, kIgnoredLabel));
    }

    [[nodiscard]] std::uint32_t columns_of(const std::vector<std::uint64_t>& rows) const {
        if (!own_.trims || rows.empty()) {
            return own_.sequence_length;
        }
        std::uint32_t columns = 0;
        for (const std::uint64_t row : rows) {
            columns = std::max(columns, at(row).length);
        }
        return columns;
    }

    TokenRows own_;
    std::unique_ptr<const Dataset> of_teacher_;
};

}  // namespace

// The fields and their order are part of a checkpoint's identity: change them only together with the tag.
std::string hash_of(const TokenRows& rows) {
    constexpr std::string_view kTag = "distilld dataset 1\n";
    Sha256 hash;
    hash.add(std::span<const char>(kTag.data(), kTag.size()));
    hash.add(rows.sequence_length);
    hash.add(rows.rows.size());
    for (const DatasetRow& row : rows.rows.all()) {
        hash.add(row.begin);
        hash.add(row.length);
    }
    hash.add(rows.ids.size());
    hash.add(rows.ids.all());
    hash.add(rows.targets().all());
    if (rows.of_teacher) {
        hash.add(std::span<const char>(rows.of_teacher->hash.data(), rows.of_teacher->hash.size()));
    }
    return hash.hex();
}

std::unique_ptr<Dataset> make_row_dataset(TokenRows rows) {
    return std::make_unique<RowDataset>(std::move(rows));
}

}  // namespace distilld
