#include "pipeline/data/row_builder.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace distilld {

RowBuilder::RowBuilder(const Tokenizer* tokenizer, const DatasetOptions& options) : options_(options) {
    if (options.packing && tokenizer != nullptr) {
        separator_ = tokenizer->end_of_text();
    }
}

Result<void> RowBuilder::add(const Document& document, std::uint64_t number, double read_share) {
    has_text_ = has_text_ || document.from_text;
    names_teachers_ = names_teachers_ || document.names_teacher;
    if (document.ids.empty()) {
        return {};
    }
    if (!options_.packing && document.ids.size() < 2) {
        return {};
    }
    std::size_t count = document.ids.size();
    if (!options_.packing) {
        count = std::min(count, std::size_t{options_.sequence_length} + 1);
    }

    reserve(tokens_.ids.size() + count + 1, read_share);
    // Ids that came ready-made keep the ends that their maker gave them.
    const bool beside_text = document.from_text || previous_from_text_;
    previous_from_text_ = document.from_text;
    if (separator_ && beside_text && !tokens_.ids.empty() && tokens_.ids.back() != *separator_) {
        if (options_.vocabulary_size != 0 && static_cast<std::uint32_t>(*separator_) >= options_.vocabulary_size) {
            return invalid_input("the tokenizer's end of text, id " + std::to_string(*separator_) +
                                 ", that goes before this document is outside the vocabulary of " +
                                 std::to_string(options_.vocabulary_size));
        }
        append(std::span(&*separator_, 1), std::span(&*separator_, 1), false);
    }
    if (!options_.packing) {
        add_row(tokens_.ids.size(), count - 1);
    }
    if (!options_.teachers.empty()) {
        begins_.push_back({tokens_.ids.size(), number});
    }
    const std::span ids(document.ids.data(), count);
    append(ids, document.has_labels ? std::span(document.labels.data(), count) : ids, document.has_labels);
    return {};
}

std::vector<std::uint64_t> RowBuilder::documents_of_rows() const {
    std::vector<std::uint64_t> numbers;
    numbers.reserve(rows_.size());
    for (const DatasetRow& row : rows_) {
        const auto next = std::ranges::upper_bound(begins_, row.begin, {}, &Begin::token);
        numbers.push_back(std::prev(next)->document);
    }
    return numbers;
}

void RowBuilder::cut() {
    const std::uint64_t count = tokens_.ids.size();
    if (options_.packing && count > 1) {
        const std::uint64_t stride = options_.sequence_length;
        rows_.reserve((count - 1 + stride - 1) / stride);
        for (std::uint64_t begin = 0; begin + 1 < count; begin += stride) {
            add_row(begin, std::min(stride, count - 1 - begin));
        }
    }
    if (!tokens_.labels.empty()) {
        std::erase_if(rows_, [this](const DatasetRow& row) {
            const auto targets = tokens_.targets().subspan(row.begin + 1, row.length);
            return std::all_of(targets.begin(), targets.end(),
                               [](std::int32_t label) { return label == kIgnoredLabel; });
        });
    }
}

std::unique_ptr<Dataset> RowBuilder::finish() {
    if (rows_.empty()) {
        return nullptr;
    }
    MemoryRows rows;
    rows.tokens = std::move(tokens_);
    rows.rows = std::move(rows_);
    rows.sequence_length = options_.sequence_length;
    rows.trims = !options_.packing;
    rows.has_text = has_text_;
    rows.names_teachers = names_teachers_;
    return make_memory_dataset(std::move(rows));
}

// Grows to what the file is likely to need rather than by doubling, which would hold up to three times the tokens
// while it copies.
void RowBuilder::reserve(std::size_t needed, double read_share) {
    if (needed <= tokens_.ids.capacity()) {
        return;
    }
    std::size_t room = needed + needed / 2;
    if (read_share > 0) {
        const double whole = static_cast<double>(needed) / read_share * 1.02;
        room = std::clamp(static_cast<std::size_t>(std::min(whole, 1e18)), needed + needed / 16, 64 * needed + 4096);
    }
    tokens_.ids.reserve(room);
    if (has_labels_) {
        tokens_.labels.reserve(room);
    }
}

void RowBuilder::append(std::span<const std::int32_t> ids, std::span<const std::int32_t> labels, bool own_labels) {
    if (own_labels && !has_labels_) {
        // The first document with labels: until now the ids were the labels.
        tokens_.labels.reserve(tokens_.ids.capacity());
        tokens_.labels = tokens_.ids;
        has_labels_ = true;
    }
    tokens_.ids.insert(tokens_.ids.end(), ids.begin(), ids.end());
    if (has_labels_) {
        tokens_.labels.insert(tokens_.labels.end(), labels.begin(), labels.end());
    }
}

void RowBuilder::add_row(std::uint64_t begin, std::uint64_t length) {
    rows_.push_back(DatasetRow{begin, static_cast<std::uint32_t>(length)});
}

}  // namespace distilld
