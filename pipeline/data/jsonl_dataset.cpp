#include <algorithm>
#include <bit>
#include <span>
#include <utility>

#include "base/sha256.hpp"
#include "pipeline/data/dataset.hpp"
#include "pipeline/data/jsonl_document.hpp"
#include "pipeline/data/mixed_dataset.hpp"
#include "pipeline/data/read_documents.hpp"

namespace distilld {

namespace {

static_assert(std::endian::native == std::endian::little, "the dataset hash is over little-endian integers");

// Inputs [begin, begin + length) of the token array; the last input's target is token begin + length.
struct Row {
    std::uint64_t begin = 0;
    std::uint32_t length = 0;
};

// The tokens of all documents, one after the other.
struct Tokens {
    std::vector<std::int32_t> ids;
    std::vector<std::int32_t> labels;  // empty: the ids are the labels

    [[nodiscard]] std::span<const std::int32_t> targets() const { return labels.empty() ? ids : labels; }
};

// The fields and their order are part of a checkpoint's identity: change them only together with the tag.
std::string hash_of(const Tokens& tokens, const std::vector<Row>& rows, std::uint32_t sequence_length) {
    constexpr std::string_view kTag = "distilld dataset 1\n";
    Sha256 hash;
    hash.add(std::span<const char>(kTag.data(), kTag.size()));
    hash.add(sequence_length);
    hash.add(rows.size());
    for (const Row& row : rows) {
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
    MemoryDataset(Tokens tokens, std::vector<Row> rows, std::uint32_t sequence_length, bool has_text,
                  bool names_teachers)
        : has_text_(has_text),
          names_teachers_(names_teachers),
          tokens_(std::move(tokens)),
          rows_(std::move(rows)),
          sequence_length_(sequence_length),
          hash_(hash_of(tokens_, rows_, sequence_length)) {
        for (const Row& row : rows_) {
            token_count_ += row.length;
        }
    }

    std::uint64_t row_count() const override { return rows_.size(); }
    std::uint64_t token_count() const override { return token_count_; }
    const std::string& hash() const override { return hash_; }
    bool has_text() const override { return has_text_; }
    bool names_teachers() const override { return names_teachers_; }

    TokenBatch batch(std::uint64_t number, const std::vector<std::uint64_t>& rows) const override {
        TokenBatch batch;
        batch.number = number;
        batch.rows = static_cast<std::uint32_t>(rows.size());
        batch.columns = sequence_length_;
        batch.input_ids.resize(rows.size() * sequence_length_, 0);
        batch.labels.resize(rows.size() * sequence_length_, kIgnoredLabel);
        batch.lengths.reserve(rows.size());
        batch.row_ids = rows;
        const auto targets = tokens_.targets();
        for (std::size_t b = 0; b < rows.size(); ++b) {
            const Row& row = rows_.at(rows[b]);
            const std::size_t out = b * sequence_length_;
            std::copy_n(tokens_.ids.begin() + static_cast<std::ptrdiff_t>(row.begin), row.length,
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
        const Row& found = rows_.at(row);
        const auto targets = tokens_.targets();
        const auto first = targets.begin() + static_cast<std::ptrdiff_t>(found.begin + 1);
        const auto masked = std::count(first, first + static_cast<std::ptrdiff_t>(found.length), kIgnoredLabel);
        return found.length - static_cast<std::uint64_t>(masked);
    }

  private:
    bool has_text_;
    bool names_teachers_;
    Tokens tokens_;
    std::vector<Row> rows_;
    std::uint32_t sequence_length_;
    std::string hash_;
    std::uint64_t token_count_ = 0;
};

// Gathers documents into one token array.
class Builder {
  public:
    Builder(const Tokenizer* tokenizer, const DatasetOptions& options) : options_(options) {
        if (options.packing && tokenizer != nullptr) {
            separator_ = tokenizer->end_of_text();
        }
    }

    // `number` counts the documents of the file. `read_share` is the part of it read so far, in (0, 1], or 0 when
    // unknown.
    Result<void> add(const Document& document, std::uint64_t number, double read_share) {
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

    // The document in which each row begins, by its number; of mixed datasets. Before finish().
    [[nodiscard]] std::vector<std::uint64_t> documents_of_rows() const {
        std::vector<std::uint64_t> numbers;
        numbers.reserve(rows_.size());
        for (const Row& row : rows_) {
            const auto next = std::ranges::upper_bound(begins_, row.begin, {}, &Begin::token);
            numbers.push_back(std::prev(next)->document);
        }
        return numbers;
    }

    // The documents are all there: cuts the rows.
    void cut() {
        const std::uint64_t count = tokens_.ids.size();
        if (options_.packing && count > 1) {
            const std::uint64_t stride = options_.sequence_length;
            rows_.reserve((count - 1 + stride - 1) / stride);
            for (std::uint64_t begin = 0; begin + 1 < count; begin += stride) {
                add_row(begin, std::min(stride, count - 1 - begin));
            }
        }
        if (!tokens_.labels.empty()) {
            std::erase_if(rows_, [this](const Row& row) {
                const auto targets = tokens_.targets().subspan(row.begin + 1, row.length);
                return std::all_of(targets.begin(), targets.end(),
                                   [](std::int32_t label) { return label == kIgnoredLabel; });
            });
        }
    }

    // After cut(). Null: there is no row.
    std::unique_ptr<Dataset> finish() {
        if (rows_.empty()) {
            return nullptr;
        }
        return std::make_unique<MemoryDataset>(std::move(tokens_), std::move(rows_), options_.sequence_length,
                                               has_text_, names_teachers_);
    }

  private:
    // Grows to what the file is likely to need rather than by doubling, which would hold up to three times the tokens
    // while it copies.
    void reserve(std::size_t needed, double read_share) {
        if (needed <= tokens_.ids.capacity()) {
            return;
        }
        std::size_t room = needed + needed / 2;
        if (read_share > 0) {
            const double whole = static_cast<double>(needed) / read_share * 1.02;
            room =
                std::clamp(static_cast<std::size_t>(std::min(whole, 1e18)), needed + needed / 16, 64 * needed + 4096);
        }
        tokens_.ids.reserve(room);
        if (has_labels_) {
            tokens_.labels.reserve(room);
        }
    }

    void append(std::span<const std::int32_t> ids, std::span<const std::int32_t> labels, bool own_labels) {
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

    void add_row(std::uint64_t begin, std::uint64_t length) {
        rows_.push_back(Row{begin, static_cast<std::uint32_t>(length)});
    }

    const DatasetOptions& options_;
    std::optional<std::int32_t> separator_;
    Tokens tokens_;
    std::vector<Row> rows_;
    struct Begin {
        std::uint64_t token = 0;
        std::uint64_t document = 0;
    };
    std::vector<Begin> begins_;  // of documents, where several teachers' rows are to be put in one order
    bool has_labels_ = false;
    bool has_text_ = false;
    bool names_teachers_ = false;
    bool previous_from_text_ = false;
};

using Files = std::span<const std::filesystem::path>;

// One each for the teachers that the documents name, or one for all.
Result<std::vector<Builder>> build_rows(Files files, const Tokenizer* tokenizer, const DatasetOptions& options) {
    if (options.sequence_length == 0) {
        return invalid_input("sequence_length is 0: at least 1 is needed");
    }
    std::vector<Builder> builders(std::max<std::size_t>(1, options.teachers.size()), Builder(tokenizer, options));
    const auto add = [&builders](const Document& document, std::uint64_t number, double read_share) {
        return builders[document.teacher].add(document, number, read_share);
    };
    if (Result<void> read = read_documents(files, tokenizer, options, add); !read) {
        return read.error();
    }
    for (Builder& builder : builders) {
        builder.cut();
    }
    return builders;
}

Error nothing_in(Files files, const std::string& of_whom) {
    const std::string which =
        files.size() == 1 ? files.front().string() + ": holds" : "the " + std::to_string(files.size()) + " files hold";
    return invalid_input(which + " nothing to train on" + of_whom +
                         ": no document has two tokens, the second of them a target");
}

}  // namespace

Result<std::unique_ptr<Dataset>> load_jsonl_dataset(Files files, const Tokenizer* tokenizer,
                                                    const DatasetOptions& options) {
    auto builders = build_rows(files, tokenizer, options);
    if (!builders) {
        return builders.error();
    }
    auto dataset = builders->front().finish();
    if (dataset == nullptr) {
        return nothing_in(files, "");
    }
    return dataset;
}

Result<std::shared_ptr<const MixedDataset>> load_mixed_dataset(Files files, const Tokenizer* tokenizer,
                                                               const DatasetOptions& options) {
    auto builders = build_rows(files, tokenizer, options);
    if (!builders) {
        return builders.error();
    }
    struct Placed {
        std::uint64_t document = 0;
        PartRow row;
    };
    std::vector<Placed> placed;
    std::vector<DatasetPart> parts;
    for (std::uint32_t part = 0; part < builders->size(); ++part) {
        Builder& builder = (*builders)[part];
        std::uint64_t row = 0;
        for (const std::uint64_t document : builder.documents_of_rows()) {
            placed.push_back({document, {part, row++}});
        }
        std::shared_ptr<const Dataset> rows = builder.finish();
        if (rows == nullptr) {
            return nothing_in(files, " of the teacher " + options.teachers[part]);
        }
        parts.push_back({options.teachers[part], std::move(rows)});
    }
    // Rows that begin in one document are of one part.
    std::ranges::sort(placed, {}, [](const Placed& one) { return std::pair(one.document, one.row.row); });
    std::vector<PartRow> order;
    order.reserve(placed.size());
    for (const Placed& one : placed) {
        order.push_back(one.row);
    }
    return std::make_shared<const MixedDataset>(std::move(parts), std::move(order), options.sequence_length);
}

}  // namespace distilld
