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
#include "pipeline/data/teacher_document.hpp"
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

DatasetOptions teacher_options(const DatasetOptions& options) {
    DatasetOptions of_teacher;
    of_teacher.sequence_length = teacher_row_length(options);
    of_teacher.packing = false;
    of_teacher.overflow = Overflow::error;
    of_teacher.vocabulary_size = options.vocabulary_size;
    return of_teacher;
}

/// The rows of what a teacher reads in place of the documents. Either all documents have that or none.
class TeacherRows {
  public:
    TeacherRows(const DatasetOptions& options, TokenDraft* draft, std::size_t parts)
        : options_(options), of_teacher_(teacher_options(options)) {
        for (std::size_t part = 0; part < parts; ++part) {
            builders_.emplace_back(nullptr, of_teacher_, draft, teacher_part(part, parts));
        }
    }

    /// Call after the document was added to the rows of the student.
    Result<void> add(const Document& document, std::uint64_t number, double read_share) {
        if (document.ids.empty()) {
            return {};
        }
        const bool has_them = !document.teacher_ids.empty();
        if (has_them != has_them_.value_or(has_them)) {
            return invalid_input(has_them ? "has a prompt for the teacher, but the documents before it have none"
                                          : "has no \"teacher_prompt\" (or \"teacher_input_ids\"), but the documents "
                                            "before it have one: give each document one, the same as for the student "
                                            "where the teacher reads nothing else");
        }
        has_them_ = has_them;
        if (!has_them) {
            return {};
        }
        const std::size_t most = std::size_t{options_.sequence_length} + 1;
        const std::size_t cut = document.ids.size() - std::min(document.ids.size(), most);
        if (cut != 0 && options_.overflow == Overflow::split) {
            return invalid_input("has " + std::to_string(document.ids.size()) +
                                 " tokens, and its teacher reads others, so it "
                                 "cannot be split into rows: raise /dataset/sequence_length, or set "
                                 "/dataset/overflow to truncate");
        }
        const Document read = teacher_document(document, cut);
        if (read.ids.size() > std::size_t{of_teacher_.sequence_length} + 1) {
            return invalid_input("the teacher reads " + std::to_string(read.ids.size()) + " tokens, " +
                                 std::to_string(std::size_t{of_teacher_.sequence_length} + 1) +
                                 " of which fit into a row: raise /dataset/teacher_sequence_length");
        }
        return builders_[document.teacher].add(read, number, read_share);
    }

    /// Adds the rows to those of the student, by part.
    Result<void> finish(std::vector<BuiltRows>& parts) {
        for (std::size_t part = 0; has_them_.value_or(false) && part < parts.size(); ++part) {
            Result<BuiltRows> built = builders_[part].finish();
            if (!built) {
                return built.error();
            }
            parts[part].rows.of_teacher = std::make_unique<TokenRows>(std::move(built->rows));
            parts[part].rows.hash = hash_of(parts[part].rows);
        }
        return {};
    }

  private:
    const DatasetOptions& options_;
    DatasetOptions of_teacher_;
    std::vector<RowBuilder> builders_;
    std::optional<bool> has_them_;
};

/// One part per teacher that documents may name, or one part for all.
Result<DatasetRows> read_rows(Files files, const Tokenizer* tokenizer, const DatasetOptions& options,
                              TokenDraft* draft) {
    std::vector<RowBuilder> builders;
    for (std::size_t part = 0; part < std::max<std::size_t>(1, options.teachers.size()); ++part) {
        builders.emplace_back(tokenizer, options, draft, std::to_string(part));
    }
    TeacherRows of_teacher(options, draft, builders.size());
    DatasetRows rows;
    const auto add = [&](const Document& document, std::uint64_t number, double read_share) {
        ++rows.documents_read;
        const Result<void> added = builders[document.teacher].add(document, number, read_share);
        return added ? of_teacher.add(document, number, read_share) : added;
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
    if (Result<void> finished = of_teacher.finish(rows.parts); !finished) {
        return finished.error();
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
