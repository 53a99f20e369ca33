#include "pipeline/data/row_builder.hpp"

#include <algorithm>
#include <utility>

namespace distilld {

RowBuilder::RowBuilder(const Tokenizer* tokenizer, const DatasetOptions& options, TokenDraft* draft,
                       const std::string& name)
    : options_(options),
      in_files_(draft != nullptr),
      ids_(draft, name + ".ids"),
      labels_(draft, name + ".labels"),
      rows_(draft, name + ".rows") {
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
    const std::size_t stride = options_.sequence_length;
    if (!options_.packing) {
        read_ += count - 1;
        if (count - 1 > stride && options_.overflow == Overflow::error) {
            return invalid_input("has " + std::to_string(count) + " tokens, " + std::to_string(stride + 1) +
                                 " of which fit into a row: raise /dataset/sequence_length, or set "
                                 "/dataset/overflow to split or truncate");
        }
        if (options_.overflow == Overflow::truncate) {
            count = std::min(count, stride + 1);
        }
    }
    const std::span ids(document.ids.data(), count);
    const std::span labels = document.has_labels ? std::span(document.labels.data(), count) : ids;

    reserve(token_count() + count + 1, read_share);
    if (Result<void> separated = separate(document); !separated) {
        return separated;
    }
    for (std::size_t begin = 0; !options_.packing && begin + 1 < count; begin += stride) {
        const std::size_t length = std::min(stride, count - 1 - begin);
        if (!has_target(labels.subspan(begin + 1, length))) {
            continue;
        }
        if (Result<void> added = add_row(token_count() + begin, length); !added) {
            return added;
        }
    }
    if (!options_.teachers.empty()) {
        begins_.push_back({token_count(), number});
    }
    return append(ids, labels, document.has_labels);
}

Result<BuiltRows> RowBuilder::finish() {
    BuiltRows built;
    Result<ColumnBytes> ids = ids_.finish();
    if (!ids) {
        return ids.error();
    }
    built.rows.ids = ColumnArray<std::int32_t>(std::move(*ids));
    if (has_labels_) {
        Result<ColumnBytes> labels = labels_.finish();
        if (!labels) {
            return labels.error();
        }
        built.rows.labels = ColumnArray<std::int32_t>(std::move(*labels));
    }
    if (options_.packing) {
        if (Result<void> done = cut(built.rows.labels); !done) {
            return done.error();
        }
    }
    Result<ColumnBytes> rows = rows_.finish();
    if (!rows) {
        return rows.error();
    }
    built.rows.rows = ColumnArray<DatasetRow>(std::move(*rows));
    built.rows.sequence_length = options_.sequence_length;
    built.rows.trims = !options_.packing;
    built.rows.has_text = has_text_;
    built.rows.names_teachers = names_teachers_;
    built.rows.token_count = positions_;
    built.rows.tokens_read = options_.packing ? std::max<std::uint64_t>(token_count(), 1) - 1 : read_;
    if (!options_.teachers.empty()) {
        built.documents = documents_of(built.rows.rows.all());
    }
    built.rows.hash = hash_of(built.rows);
    return built;
}

/// Rows of joined documents; those without any target are left out.
Result<void> RowBuilder::cut(const ColumnArray<std::int32_t>& labels) {
    const std::uint64_t count = token_count();
    const std::uint64_t stride = options_.sequence_length;
    for (std::uint64_t begin = 0; begin + 1 < count; begin += stride) {
        const std::uint64_t length = std::min(stride, count - 1 - begin);
        if (!labels.empty() && !has_target(labels.all().subspan(begin + 1, length))) {
            continue;
        }
        if (Result<void> added = add_row(begin, length); !added) {
            return added;
        }
    }
    return {};
}

std::vector<std::uint64_t> RowBuilder::documents_of(std::span<const DatasetRow> rows) const {
    std::vector<std::uint64_t> numbers;
    numbers.reserve(rows.size());
    for (const DatasetRow& row : rows) {
        const auto next = std::ranges::upper_bound(begins_, row.begin, {}, &Begin::token);
        numbers.push_back(std::prev(next)->document);
    }
    return numbers;
}

// Grows to the expected size of the file. Doubling would hold up to three times the tokens while it copies.
void RowBuilder::reserve(std::uint64_t needed, double read_share) {
    if (in_files_ || needed * sizeof(std::int32_t) <= ids_.capacity()) {
        return;
    }
    std::uint64_t room = needed + needed / 2;
    if (read_share > 0) {
        const double whole = static_cast<double>(needed) / read_share * 1.02;
        room = std::clamp(static_cast<std::uint64_t>(std::min(whole, 1e18)), needed + needed / 16, 64 * needed + 4096);
    }
    ids_.reserve(room * sizeof(std::int32_t));
    if (has_labels_) {
        labels_.reserve(room * sizeof(std::int32_t));
    }
}

/// Adds end_of_text before this document if needed.
Result<void> RowBuilder::separate(const Document& document) {
    // Ready-made ids keep their own ends.
    const bool beside_text = document.from_text || previous_from_text_;
    previous_from_text_ = document.from_text;
    if (!separator_ || !beside_text || ids_.size() == 0 || last_id_ == *separator_) {
        return {};
    }
    if (options_.vocabulary_size != 0 && static_cast<std::uint32_t>(*separator_) >= options_.vocabulary_size) {
        return invalid_input("the tokenizer's end of text, id " + std::to_string(*separator_) +
                             ", that goes before this document is outside the vocabulary of " +
                             std::to_string(options_.vocabulary_size));
    }
    return append(std::span(&*separator_, 1), std::span(&*separator_, 1), false);
}

Result<void> RowBuilder::append(std::span<const std::int32_t> ids, std::span<const std::int32_t> labels,
                                bool own_labels) {
    if (own_labels && !has_labels_) {
        // The first document with labels: until now the ids were the labels.
        labels_.reserve(ids_.capacity());
        if (Result<void> copied = labels_.append_all_of(ids_); !copied) {
            return copied;
        }
        has_labels_ = true;
    }
    last_id_ = ids.back();
    if (Result<void> appended = ids_.append(std::as_bytes(ids)); !appended || !has_labels_) {
        return appended;
    }
    return labels_.append(std::as_bytes(labels));
}

Result<void> RowBuilder::add_row(std::uint64_t begin, std::uint64_t length) {
    positions_ += length;
    const DatasetRow row{begin, static_cast<std::uint32_t>(length), 0};
    return rows_.append(std::as_bytes(std::span(&row, 1)));
}

}  // namespace distilld
