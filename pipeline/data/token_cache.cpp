#include "pipeline/data/token_cache.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <boost/json/object.hpp>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/crc32c.hpp"
#include "base/files/files.hpp"
#include "base/files/open_file.hpp"
#include "base/hex.hpp"
#include "base/json_fields.hpp"
#include "base/json_text.hpp"
#include "base/sha256.hpp"
#include "pipeline/data/column_builder.hpp"

namespace distilld {

namespace {

namespace fs = std::filesystem;

/// A row of the file `order`.
struct OrderedRow {
    std::uint64_t part = 0;
    std::uint64_t row = 0;
};

constexpr const char* kOrderFile = "order";
constexpr std::size_t kNameDigits = 32;  ///< enough digits of the SHA-256, and short in logs

void add_text(Sha256& hash, std::string_view text) {
    hash.add(std::uint64_t{text.size()});
    hash.add(std::span<const char>(text.data(), text.size()));
}

std::uint64_t nanoseconds(const timespec& time) {
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(time.tv_nsec);
}

/// False if the file is missing or not a regular file. ctime detects changes that keep size and modification time.
bool add_file(Sha256& hash, const fs::path& file) {
    struct stat status{};
    if (::stat(file.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) {
        return false;
    }
    add_text(hash, file.string());
    hash.add(static_cast<std::uint64_t>(status.st_size));
    hash.add(static_cast<std::uint64_t>(status.st_ino));
    hash.add(nanoseconds(status.st_mtim));
    hash.add(nanoseconds(status.st_ctim));
    return true;
}

/// Describes the files of one part of a dataset.
struct PartIndex {
    std::uint64_t tokens = 0;
    std::uint32_t ids_sum = 0;  ///< CRC-32C
    bool has_labels = false;
    std::uint32_t labels_sum = 0;
    std::uint64_t rows = 0;
    std::uint32_t rows_sum = 0;
    std::uint64_t token_count = 0;  ///< input positions of the rows
    std::uint64_t tokens_read = 0;  ///< including positions in no row
    bool has_text = false;
    bool names_teachers = false;
    std::string hash;
};

/// Describes a folder of tokens: its index.json.
struct TokenIndex {
    std::uint32_t sequence_length = 0;
    bool trims = false;
    std::vector<PartIndex> parts;
    std::uint32_t teacher_sequence_length = 0;
    std::vector<PartIndex> of_teacher;  ///< as many as parts, or none
    std::uint64_t order_rows = 0;       ///< 0: no order
    std::uint32_t order_sum = 0;
};

BOOST_DESCRIBE_STRUCT(PartIndex, (),
                      (tokens, ids_sum, has_labels, labels_sum, rows, rows_sum, token_count, tokens_read, has_text,
                       names_teachers, hash))

BOOST_DESCRIBE_STRUCT(TokenIndex, (),
                      (sequence_length, trims, parts, teacher_sequence_length, of_teacher, order_rows, order_sum))

constexpr std::uint64_t kMaxIndexBytes = 1U << 20;
constexpr std::size_t kMaxDepth = 8;

std::string sum_of(std::string_view line) {
    return std::to_string(crc32c(std::as_bytes(std::span(line.data(), line.size()))));
}

/// A line of JSON, then a line with its CRC-32C.
std::string index_text(const TokenIndex& index) {
    const std::string line = to_text(write_fields(index));
    return line + "\n" + sum_of(line) + "\n";
}

/// Reads what index_text() wrote. The error names the file.
Result<TokenIndex> read_index(const std::filesystem::path& file) {
    const Result<std::string> text = read_text_file(file, kMaxIndexBytes);
    if (!text) {
        return text.error();
    }
    const std::string_view line = std::string_view(*text).substr(0, text->find('\n'));
    if (*text != std::string(line) + "\n" + sum_of(line) + "\n") {
        return io_error(file.string() + ": is damaged");
    }
    const auto json = parse_json_text(line, kMaxDepth);
    TokenIndex index;
    if (!json || !json->is_object()) {
        return io_error(file.string() + ": is not a JSON object");
    }
    if (const Result<void> read = read_fields(json->get_object(), index, {file.string(), ""}); !read) {
        return read.error();
    }
    return index;
}

std::string part_file(const std::string& part, const char* what) {
    return part + "." + what;
}

template <class T>
Result<ColumnArray<T>> map_array(const fs::path& file, std::uint64_t count, std::uint32_t sum) {
    Result<MappedFile> map = MappedFile::open(file);
    if (!map) {
        return map.error();
    }
    const std::size_t bytes = map->bytes().size();
    if (bytes / sizeof(T) != count || bytes % sizeof(T) != 0) {
        return io_error(file.string() + ": has " + std::to_string(bytes) + " bytes, not those that were written");
    }
    if (crc32c(map->bytes()) != sum) {
        return io_error(file.string() + ": is damaged: the disk returned other bytes than were written");
    }
    return ColumnArray<T>(ColumnBytes{{}, std::move(*map), sum});
}

/// `name` is the prefix of the files' names.
Result<TokenRows> map_part(const fs::path& place, const PartIndex& part, const std::string& name,
                           std::uint32_t sequence_length, bool trims) {
    auto ids = map_array<std::int32_t>(place / part_file(name, "ids"), part.tokens, part.ids_sum);
    if (!ids) {
        return ids.error();
    }
    auto rows = map_array<DatasetRow>(place / part_file(name, "rows"), part.rows, part.rows_sum);
    if (!rows) {
        return rows.error();
    }
    // Checks all rows: a row that reaches too far would read outside the file.
    for (const DatasetRow& row : rows->all()) {
        if (row.length > sequence_length || row.begin >= part.tokens || row.length >= part.tokens - row.begin) {
            return io_error((place / part_file(name, "rows")).string() + ": a row reaches beyond the tokens");
        }
    }
    TokenRows built;
    built.ids = std::move(*ids);
    built.rows = std::move(*rows);
    if (part.has_labels) {
        auto labels = map_array<std::int32_t>(place / part_file(name, "labels"), part.tokens, part.labels_sum);
        if (!labels) {
            return labels.error();
        }
        built.labels = std::move(*labels);
    }
    built.sequence_length = sequence_length;
    built.trims = trims;
    built.has_text = part.has_text;
    built.names_teachers = part.names_teachers;
    built.token_count = part.token_count;
    built.tokens_read = part.tokens_read;
    built.hash = part.hash;
    return built;
}

Result<std::vector<PartRow>> read_order(const fs::path& place, const TokenIndex& index) {
    const auto mapped = map_array<OrderedRow>(place / kOrderFile, index.order_rows, index.order_sum);
    if (!mapped) {
        return mapped.error();
    }
    std::vector<PartRow> order;
    order.reserve(index.order_rows);
    for (const OrderedRow& row : mapped->all()) {
        if (row.part >= index.parts.size() || row.row >= index.parts[row.part].rows) {
            return io_error((place / kOrderFile).string() + ": names a row that does not exist");
        }
        order.push_back({static_cast<std::uint32_t>(row.part), row.row});
    }
    return order;
}

/// Whether the name is of tokens or of a draft.
bool is_ours(std::string_view name) {
    name.remove_prefix(name.starts_with('.') ? 1 : 0);
    const std::size_t digits = std::min(name.find_first_not_of(kHexDigits), name.size());
    return digits == kNameDigits && name.substr(digits).starts_with(".tokens");
}

std::uint64_t tokens_of(const DatasetRows& rows) {
    std::uint64_t tokens = 0;
    for (const BuiltRows& part : rows.parts) {
        tokens += part.rows.ids.size();
    }
    return tokens;
}

PartIndex index_of(const TokenRows& part) {
    return {part.ids.size(), part.ids.sum(),   !part.labels.empty(), part.labels.sum(), part.rows.size(),
            part.rows.sum(), part.token_count, part.tokens_read,     part.has_text,     part.names_teachers,
            part.hash};
}

TokenIndex index_of(const DatasetRows& rows) {
    TokenIndex index;
    index.sequence_length = rows.parts.front().rows.sequence_length;
    index.trims = rows.parts.front().rows.trims;
    for (const BuiltRows& built : rows.parts) {
        index.parts.push_back(index_of(built.rows));
        if (const TokenRows* of_teacher = built.rows.of_teacher.get()) {
            index.teacher_sequence_length = of_teacher->sequence_length;
            index.of_teacher.push_back(index_of(*of_teacher));
        }
    }
    return index;
}

/// Writes the order and returns its checksum.
Result<std::uint32_t> write_order(TokenDraft& draft, const std::vector<PartRow>& order) {
    ColumnBuilder bytes(&draft, kOrderFile);
    for (const PartRow& place : order) {
        const OrderedRow row{place.part, place.row};
        if (Result<void> appended = bytes.append(std::as_bytes(std::span(&row, 1))); !appended) {
            return appended.error();
        }
    }
    const Result<ColumnBytes> written = bytes.finish();
    return written ? Result<std::uint32_t>(written->sum) : written.error();
}

}  // namespace

TokenCache::TokenCache(fs::path folder, std::string reader, Tell on_info, Tell on_warning, std::uint64_t min_bytes)
    : folder_(std::move(folder)),
      reader_(std::move(reader)),
      on_info_(std::move(on_info)),
      on_warning_(std::move(on_warning)),
      min_bytes_(min_bytes) {}

std::optional<fs::path> TokenCache::place_of(std::span<const fs::path> files, const DatasetOptions& options) const {
    // Raise it if the same files yield other tokens or rows, or if the layout of the folder changes.
    constexpr std::string_view kTag = "distilld tokens 4\n";
    Sha256 hash;
    add_text(hash, kTag);
    add_text(hash, reader_);
    hash.add(options.sequence_length);
    hash.add(options.teacher_sequence_length);
    hash.add(options.packing ? 1 : 0);
    hash.add(static_cast<std::uint32_t>(options.packing ? Overflow::automatic : options.overflow));
    hash.add(options.vocabulary_size);
    hash.add(options.completion_only_loss ? 1 : 0);
    hash.add(std::uint64_t{options.teachers.size()});
    for (const std::string& teacher : options.teachers) {
        add_text(hash, teacher);
    }
    if (options.teacher_tokenizer != nullptr) {
        add_text(hash, options.keeps_labels ? "teacher's tokenizer, all labels" : "teacher's tokenizer");
    }
    if (options.prompts) {
        add_text(hash, "prompts");
    }
    for (const fs::path& file : files) {
        if (!add_file(hash, file)) {
            return std::nullopt;
        }
    }
    return folder_ / (hash.hex().substr(0, kNameDigits) + ".tokens");
}

std::optional<DatasetRows> TokenCache::open(const fs::path& place, const std::string& what) {
    std::error_code unknown;
    if (!fs::exists(place / kTokenIndex, unknown)) {
        return std::nullopt;
    }
    Result<DatasetRows> rows = read(place);
    if (!rows) {
        on_warning_("the cached tokens of " + what +
                    " cannot be used, reading the data again: " + rows.error().message);
        return std::nullopt;
    }
    used_.push_back(place);
    on_info_(std::to_string(tokens_of(*rows)) + " tokens of " + what + " are mapped from " + place.string());
    return std::move(*rows);
}

std::unique_ptr<TokenDraft> TokenCache::make_draft(const fs::path& place, std::span<const fs::path> files) const {
    std::uintmax_t bytes = 0;
    for (const fs::path& file : files) {
        std::error_code unknown;
        const std::uintmax_t size = fs::file_size(file, unknown);
        bytes += unknown ? 0 : size;
    }
    return bytes < min_bytes_ ? nullptr : std::make_unique<TokenDraft>(place);
}

void TokenCache::keep(TokenDraft& draft, const DatasetRows& rows, const std::string& what) {
    TokenIndex index = index_of(rows);
    index.order_rows = rows.order.size();
    if (!rows.order.empty()) {
        if (const Result<std::uint32_t> sum = write_order(draft, rows.order)) {
            index.order_sum = *sum;
        }
    }
    if (draft.failure() || !draft.commit(index_text(index))) {
        warn_of_failure(draft);
        return;
    }
    used_.push_back(draft.target());
    on_info_(std::to_string(tokens_of(rows)) + " tokens of " + what + " are kept in " + draft.target().string());
}

void TokenCache::warn_of_failure(const TokenDraft& draft) const {
    on_warning_("tokens are held in memory and read again at the next start, because " + folder_.string() +
                " cannot keep them: " + draft.failure().value_or(""));
}

void TokenCache::warn_of_change(const std::string& what) const {
    on_warning_(what + " changed while it was read: its tokens are not kept for the next start");
}

void TokenCache::sweep() const {
    const Result<std::vector<std::string>> names = names_in(folder_);
    if (!names) {
        return;
    }
    bool removed = false;
    for (const std::string& name : *names) {
        if (is_ours(name) && std::ranges::find(used_, folder_ / name) == used_.end()) {
            removed = remove_tree(folder_ / name).has_value() || removed;
        }
    }
    if (removed) {
        static_cast<void>(remove_entry(folder_));  // if it is empty
    }
}

Result<DatasetRows> TokenCache::read(const fs::path& place) {
    const Result<TokenIndex> index = read_index(place / kTokenIndex);
    if (!index) {
        return index.error();
    }
    DatasetRows rows;
    const std::size_t parts = index->parts.size();
    if (!index->of_teacher.empty() && index->of_teacher.size() != parts) {
        return io_error((place / kTokenIndex).string() + ": has teacher rows for some parts only");
    }
    for (std::size_t part = 0; part < parts; ++part) {
        Result<TokenRows> mapped =
            map_part(place, index->parts[part], std::to_string(part), index->sequence_length, index->trims);
        if (!mapped) {
            return mapped.error();
        }
        if (!index->of_teacher.empty()) {
            Result<TokenRows> of_teacher = map_part(place, index->of_teacher[part], teacher_part(part, parts),
                                                    index->teacher_sequence_length, true);
            if (!of_teacher) {
                return of_teacher.error();
            }
            if (of_teacher->rows.size() != mapped->rows.size()) {
                return io_error((place / kTokenIndex).string() + ": the teacher has other rows than the student");
            }
            mapped->of_teacher = std::make_unique<TokenRows>(std::move(*of_teacher));
        }
        rows.parts.push_back({std::move(*mapped), {}});
    }
    if (rows.parts.empty()) {
        return io_error((place / kTokenIndex).string() + ": names no part");
    }
    if (index->order_rows != 0) {
        Result<std::vector<PartRow>> order = read_order(place, *index);
        if (!order) {
            return order.error();
        }
        rows.order = std::move(*order);
    }
    return rows;
}

}  // namespace distilld
