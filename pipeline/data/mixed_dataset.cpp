#include "pipeline/data/mixed_dataset.hpp"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "base/sha256.hpp"

namespace distilld {
namespace {

// The hashed fields are part of a checkpoint's identity: change them only together with the tag.
std::string hash_of(const std::vector<DatasetPart>& parts, const std::vector<PartRow>& rows) {
    constexpr std::string_view kTag = "distilld dataset of several teachers 1\n";
    Sha256 hash;
    const auto add_text = [&hash](std::string_view text) {
        hash.add(std::uint64_t{text.size()});
        hash.add(std::span<const char>(text.data(), text.size()));
    };
    add_text(kTag);
    hash.add(std::uint64_t{parts.size()});
    for (const DatasetPart& part : parts) {
        add_text(part.teacher);
        add_text(part.rows->hash());
    }
    for (const PartRow& row : rows) {
        hash.add(row.part);
        hash.add(row.row);
    }
    return hash.hex();
}

}  // namespace

std::vector<PartRow> in_order(std::vector<PlacedRow> rows) {
    std::ranges::sort(rows, {}, [](const PlacedRow& one) { return std::pair(one.document, one.row.row); });
    std::vector<PartRow> order;
    order.reserve(rows.size());
    for (const PlacedRow& one : rows) {
        order.push_back(one.row);
    }
    return order;
}

MixedDataset::MixedDataset(std::vector<DatasetPart> parts, std::vector<PartRow> rows)
    : parts_(std::move(parts)), rows_(std::move(rows)), hash_(hash_of(parts_, rows_)) {}

std::uint64_t MixedDataset::token_count() const {
    std::uint64_t tokens = 0;
    for (const DatasetPart& part : parts_) {
        tokens += part.rows->token_count();
    }
    return tokens;
}

std::uint64_t MixedDataset::tokens_read() const {
    std::uint64_t tokens = 0;
    for (const DatasetPart& part : parts_) {
        tokens += part.rows->tokens_read();
    }
    return tokens;
}

bool MixedDataset::has_text() const {
    return std::ranges::any_of(parts_, [](const DatasetPart& part) { return part.rows->has_text(); });
}

std::uint32_t MixedDataset::row_length(std::uint64_t row) const {
    const PartRow place = place_of(row);
    return parts_[place.part].rows->row_length(place.row);
}

std::uint64_t MixedDataset::target_tokens(std::uint64_t row) const {
    const PartRow place = place_of(row);
    return parts_[place.part].rows->target_tokens(place.row);
}

TokenBatch MixedDataset::batch(std::uint64_t number, const std::vector<std::uint64_t>& rows) const {
    std::vector<TokenBatch> ones;
    ones.reserve(rows.size());
    TokenBatch whole;
    for (const std::uint64_t row : rows) {
        const PartRow place = place_of(row);
        ones.push_back(parts_[place.part].rows->batch(number, {place.row}));
        whole.columns = std::max(whole.columns, ones.back().columns);
    }
    whole.number = number;
    whole.rows = static_cast<std::uint32_t>(rows.size());
    whole.row_ids = rows;
    whole.input_ids.resize(rows.size() * whole.columns, 0);
    whole.labels.resize(rows.size() * whole.columns, kIgnoredLabel);
    whole.lengths.reserve(rows.size());
    for (std::uint32_t b = 0; b < whole.rows; ++b) {
        const TokenBatch& one = ones[b];
        const auto first = static_cast<std::ptrdiff_t>(std::size_t{b} * whole.columns);
        std::ranges::copy(one.input_ids, whole.input_ids.begin() + first);
        std::ranges::copy(one.labels, whole.labels.begin() + first);
        whole.lengths.push_back(one.lengths.front());
        whole.target_tokens += one.target_tokens;
        for (RowDocument document : one.documents) {
            document.row = b;
            whole.documents.push_back(document);
        }
    }
    return whole;
}

}  // namespace distilld
