#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "pipeline/data/dataset.hpp"
#include "pipeline/data/jsonl_document.hpp"
#include "pipeline/data/mixed_dataset.hpp"
#include "pipeline/data/read_documents.hpp"
#include "pipeline/data/row_builder.hpp"
#include "pipeline/data/row_dataset.hpp"
#include "pipeline/data/token_cache.hpp"

namespace distilld {

namespace {

using Files = std::span<const std::filesystem::path>;

std::string shown(Files files) {
    return files.size() == 1 ? files.front().string() : std::to_string(files.size()) + " files";
}

Error nothing_in(Files files, const DatasetRows& rows, const std::string& of_whom) {
    const bool one = files.size() == 1;
    const std::string which = one ? files.front().string() + ": " : "the " + std::to_string(files.size()) + " files ";
    if (rows.documents_read == 0) {
        return invalid_input(which + (one ? "is" : "are") +
                             " empty: write at least one document, one per line, such as {\"text\": \"…\"}");
    }
    return invalid_input(which + (one ? "holds" : "hold") + " no row to learn from" + of_whom +
                         ": no document has two tokens, the second of them a target");
}

/// The rows of several parts, in the order in which they begin in the files.
std::vector<PartRow> order_of(const std::vector<BuiltRows>& parts) {
    std::vector<PlacedRow> placed;
    for (std::uint32_t part = 0; part < parts.size(); ++part) {
        std::uint64_t row = 0;
        for (const std::uint64_t document : parts[part].documents) {
            placed.push_back({document, {part, row++}});
        }
    }
    return in_order(std::move(placed));
}

/// One part per teacher that documents may name, or one part for all.
Result<DatasetRows> read_rows(Files files, const Tokenizer* tokenizer, const DatasetOptions& options,
                              TokenDraft* draft) {
    std::vector<RowBuilder> builders;
    for (std::size_t part = 0; part < std::max<std::size_t>(1, options.teachers.size()); ++part) {
        builders.emplace_back(tokenizer, options, draft, std::to_string(part));
    }
    DatasetRows rows;
    const auto add = [&](const Document& document, std::uint64_t number, double read_share) {
        ++rows.documents_read;
        return builders[document.teacher].add(document, number, read_share);
    };
    if (Result<void> read = read_documents(files, tokenizer, options, add); !read) {
        return read.error();
    }
    for (std::size_t part = 0; part < builders.size(); ++part) {
        Result<BuiltRows> built = builders[part].finish();
        if (!built) {
            return built.error();
        }
        rows.parts.push_back(std::move(*built));
    }
    if (!options.teachers.empty()) {
        rows.order = order_of(rows.parts);
    }
    return rows;
}

/// Loads the rows from the cache if it has them, else from the files.
Result<DatasetRows> load_rows(Files files, const Tokenizer* tokenizer, const DatasetOptions& options) {
    if (options.sequence_length == 0) {
        return invalid_input("sequence_length is 0: at least 1 is needed");
    }
    TokenCache* const cache = options.cache;
    const auto place = cache == nullptr ? std::nullopt : cache->place_of(files, options);
    if (!place) {
        return read_rows(files, tokenizer, options, nullptr);
    }
    if (std::optional<DatasetRows> kept = cache->open(*place, shown(files))) {
        return std::move(*kept);
    }
    std::unique_ptr<TokenDraft> draft = cache->make_draft(*place, files);
    Result<DatasetRows> rows = read_rows(files, tokenizer, options, draft.get());
    if (draft != nullptr && draft->failure()) {
        cache->warn_of_failure(*draft);
        draft.reset();
        return read_rows(files, tokenizer, options, nullptr);
    }
    // A part without rows is an error, or too small to cache.
    const auto is_empty = [](const BuiltRows& part) { return part.rows.rows.empty(); };
    if (draft == nullptr || !rows || std::ranges::any_of(rows->parts, is_empty)) {
        return rows;
    }
    if (cache->place_of(files, options) == place) {
        cache->keep(*draft, *rows, shown(files));
    } else {
        cache->warn_of_change(shown(files));
    }
    return rows;
}

}  // namespace

Result<std::unique_ptr<Dataset>> load_jsonl_dataset(Files files, const Tokenizer* tokenizer,
                                                    const DatasetOptions& options) {
    Result<DatasetRows> rows = load_rows(files, tokenizer, options);
    if (!rows) {
        return rows.error();
    }
    if (rows->parts.front().rows.rows.size() == 0) {
        return nothing_in(files, *rows, "");
    }
    return make_row_dataset(std::move(rows->parts.front().rows));
}

Result<std::shared_ptr<const MixedDataset>> load_mixed_dataset(Files files, const Tokenizer* tokenizer,
                                                               const DatasetOptions& options, bool every_teacher) {
    Result<DatasetRows> rows = load_rows(files, tokenizer, options);
    if (!rows) {
        return rows.error();
    }
    std::vector<DatasetPart> parts;
    for (std::size_t part = 0; part < options.teachers.size(); ++part) {
        if (every_teacher && rows->parts[part].rows.rows.size() == 0) {
            return nothing_in(files, *rows, " of the teacher " + options.teachers[part]);
        }
        parts.push_back({options.teachers[part], make_row_dataset(std::move(rows->parts[part].rows))});
    }
    if (rows->order.empty()) {
        return nothing_in(files, *rows, "");
    }
    return std::make_shared<const MixedDataset>(std::move(parts), std::move(rows->order));
}

}  // namespace distilld
