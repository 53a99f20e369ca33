#include "pipeline/data/memory_dataset.hpp"

#include <algorithm>
#include <bit>
#include <string>
#include <string_view>
#include <utility>

#include "base/sha256.hpp"

namespace distilld {

namespace {

static_assert(std::endian::native == std::endian::little, "the dataset hash is over little-endian integers");

// The fields and their order are part of a checkpoint's identity: change them only together with the tag.
std::string hash_of(const DatasetTokens& tokens, const std::vector<DatasetRow>& rows, std::uint32_t sequence_length) {
    constexpr std::string_view kTag = "distilld dataset 1\n";
    Sha256 hash;
    hash.add(std::span<const char>(kTag.data(), kTag.size()));
    hash.add(sequence_length);
    hash.add(rows.size());
    for (const DatasetRow& row : rows) {
        hash.add(row.begin);
        hash.add(row.length);
    }
    hash.add(tokens.ids.size());
    hash.add(std::span<const std::int32_t>(tokens.ids));
    hash.add(tokens.targets());
    return hash.hex();
}

class MemoryDataset final : public Dataset {
  public:
    explicit MemoryDataset(MemoryRows rows)
        : own_(std::move(rows)), hash_(hash_of(own_.tokens, own_.rows, own_.sequence_length)) {
        for (const DatasetRow& row : own_.rows) {
            token_count_ += row.length;
        }
    }

    std::uint64_t row_count() const override { return own_.rows.size(); }
    std::uint64_t token_count() const override { return token_count_; }
    const std::string& hash() const override { return hash_; }
    bool has_text() const override { return own_.has_text; }
    bool names_teachers() const override { return own_.names_teachers; }
    std::uint32_t row_length(std::uint64_t row) const override { return own_.rows.at(row).length; }

    TokenBatch batch(std::uint64_t number, const std::vector<std::uint64_t>& rows) const override {
        TokenBatch batch;
        batch.number = number;
        batch.rows = static_cast<std::uint32_t>(rows.size());
        batch.columns = columns_of(rows);
        batch.input_ids.resize(rows.size() * batch.columns, 0);
        batch.labels.resize(rows.size() * batch.columns, kIgnoredLabel);
        batch.lengths.reserve(rows.size());
        batch.row_ids = rows;
        const auto targets = own_.tokens.targets();
        for (std::size_t b = 0; b < rows.size(); ++b) {
            const DatasetRow& row = own_.rows.at(rows[b]);
            const std::size_t out = b * batch.columns;
            std::copy_n(own_.tokens.ids.begin() + static_cast<std::ptrdiff_t>(row.begin), row.length,
                        batch.input_ids.begin() + static_cast<std::ptrdiff_t>(out));
            for (std::size_t t = 0; t < row.length; ++t) {
                const std::int32_t label = targets[row.begin + t + 1];
                batch.labels[out + t] = label;
                if (label != kIgnoredLabel) {
                    ++batch.target_tokens;
                }
            }
            batch.lengths.push_back(static_cast<std::int32_t>(row.length));
        }
        return batch;
    }

    std::uint64_t target_tokens(std::uint64_t row) const override {
        const DatasetRow& found = own_.rows.at(row);
        const auto targets = own_.tokens.targets();
        const auto first = targets.begin() + static_cast<std::ptrdiff_t>(found.begin + 1);
        const auto masked = std::count(first, first + static_cast<std::ptrdiff_t>(found.length), kIgnoredLabel);
        return found.length - static_cast<std::uint64_t>(masked);
    }

  private:
    [[nodiscard]] std::uint32_t columns_of(const std::vector<std::uint64_t>& rows) const {
        if (!own_.trims || rows.empty()) {
            return own_.sequence_length;
        }
        std::uint32_t columns = 0;
        for (const std::uint64_t row : rows) {
            columns = std::max(columns, own_.rows.at(row).length);
        }
        return columns;
    }

    MemoryRows own_;
    std::string hash_;
    std::uint64_t token_count_ = 0;
};

}  // namespace

std::unique_ptr<Dataset> make_memory_dataset(MemoryRows rows) {
    return std::make_unique<MemoryDataset>(std::move(rows));
}

}  // namespace distilld
