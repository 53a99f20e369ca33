#include "pipeline/store/sealed_shards.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "base/files/files.hpp"
#include "base/files/open_file.hpp"
#include "base/json_fields.hpp"

namespace distilld {
namespace {

constexpr std::uint64_t kMaxListBytes = std::uint64_t{1} << 30U;

Result<StoreShard> read_line(const std::string& line, const StoreManifest& manifest, const std::string& place) {
    const auto parsed = parse_json_text(line, 4);
    if (!parsed || !parsed->is_object()) {
        return invalid_input(place + ": not a JSON object");
    }
    StoreShard shard;
    shard.shard = manifest.shard_count();
    if (auto read = read_fields(parsed->get_object(), shard, JsonPlace{place, ""}); !read) {
        return read.error();
    }
    if (shard.shard >= manifest.shard_count() || shard.file != shard_file_name(shard.shard) ||
        shard.first_row != shard.shard * manifest.shard_rows || shard.rows != rows_of_shard(manifest, shard.shard)) {
        return invalid_input(place + ": not a shard of this store");
    }
    return shard;
}

}  // namespace

std::filesystem::path shard_list_file(const std::filesystem::path& folder) {
    return folder / "shards.jsonl";
}

bool lists_a_shard(const std::filesystem::path& folder) {
    std::error_code error;
    const auto bytes = std::filesystem::file_size(shard_list_file(folder), error);
    return !error && bytes > 0;
}

Result<std::vector<StoreShard>> read_shard_list(const std::filesystem::path& folder, const StoreManifest& manifest,
                                                std::uint64_t& offset) {
    const auto path = shard_list_file(folder);
    std::error_code error;
    const std::uintmax_t size = std::filesystem::file_size(path, error);
    if (error) {
        if (error == std::errc::no_such_file_or_directory) {
            return std::vector<StoreShard>();
        }
        return io_error(path.string() + ": cannot read: " + error.message());
    }
    if (size == offset) {
        return std::vector<StoreShard>();
    }
    const auto text = read_text_file(path, kMaxListBytes);
    if (!text) {
        return text.error();
    }
    if (offset > text->size()) {
        return io_error(path.string() + ": has become shorter");
    }
    std::vector<StoreShard> shards;
    std::size_t number = 1 + static_cast<std::size_t>(
                                 std::count(text->begin(), text->begin() + static_cast<std::ptrdiff_t>(offset), '\n'));
    for (std::size_t end = text->find('\n', offset); end != std::string::npos; end = text->find('\n', offset)) {
        auto shard =
            read_line(text->substr(offset, end - offset), manifest, path.string() + ":" + std::to_string(number));
        if (!shard) {
            return shard.error();
        }
        shards.push_back(std::move(*shard));
        offset = end + 1;
        ++number;
    }
    return shards;
}

Result<void> cut_torn_line(const std::filesystem::path& folder) {
    const auto path = shard_list_file(folder);
    std::error_code error;
    if (!std::filesystem::exists(path, error)) {
        return {};
    }
    const Result<Descriptor> file = open_file(path, O_RDWR);
    if (!file) {
        return file.error();
    }
    const off_t size = ::lseek(file->get(), 0, SEEK_END);
    // Usually reads only the last byte.
    off_t end = size;
    for (char last = 0; end > 0; --end) {
        if (::pread(file->get(), &last, 1, end - 1) != 1) {
            return io_error(path.string() + ": cannot read");
        }
        if (last == '\n') {
            break;
        }
    }
    if (end < size && ::ftruncate(file->get(), end) != 0) {
        return io_error(path.string() + ": cannot cut off a torn line: " + std::generic_category().message(errno));
    }
    return {};
}

Result<void> append_to_shard_list(const std::filesystem::path& folder, const StoreShard& shard) {
    const auto path = shard_list_file(folder);
    const std::string line = to_text(write_fields(shard)) + "\n";
    const Result<Descriptor> opened = open_file(path, O_WRONLY | O_CREAT);
    if (!opened) {
        return opened.error();
    }
    const int file = opened->get();
    // One write: a reader sees the whole line or, before its line feed is there, none of it.
    const off_t end = ::lseek(file, 0, SEEK_END);
    const auto written = end < 0 ? -1 : ::write(file, line.data(), line.size());
    int number = 0;
    if (written < 0) {
        number = errno;
    } else if (static_cast<std::size_t>(written) < line.size()) {
        number = ENOSPC;
    } else if (::fsync(file) != 0) {
        number = errno;
    }
    if (number != 0 && end >= 0 && ::ftruncate(file, end) != 0) {
        number = errno;
    }
    if (number != 0) {
        return write_error(path.string() + ": cannot write: " + std::generic_category().message(number), number);
    }
    return sync_folder(folder);
}

std::optional<std::string> wrong_size(const std::filesystem::path& folder, const StoreShard& entry) {
    const std::filesystem::path path = folder / entry.file;
    std::error_code error;
    const std::uintmax_t size = std::filesystem::file_size(path, error);
    if (error || size == entry.bytes) {
        return std::nullopt;
    }
    return path.string() + " is damaged: it has " + std::to_string(size) + " bytes, and " +
           std::to_string(entry.bytes) + " were sealed";
}

SealedShards::SealedShards(std::filesystem::path folder, const RowCodec& codec)
    : folder_(std::move(folder)), codec_(codec) {}

Result<bool> SealedShards::refresh() {
    const std::lock_guard lock(mutex_);
    const auto found = read_shard_list(folder_, codec_.manifest(), offset_);
    if (!found) {
        return found.error();
    }
    bool grown = false;
    // A later line replaces an earlier one: the file was written again.
    for (const StoreShard& entry : *found) {
        grown = take(entry) || grown;
    }
    for (const auto& [number, damaged] : std::exchange(damaged_, {})) {
        grown = take(damaged.entry) || grown;
    }
    return grown;
}

/// True if its file exists and has the sealed size.
bool SealedShards::take(const StoreShard& entry) {
    shards_.erase(entry.shard);
    damaged_.erase(entry.shard);
    if (auto defect = wrong_size(folder_, entry)) {
        damaged_[entry.shard] = Damaged{entry, std::move(*defect)};
        return false;
    }
    std::error_code error;
    if (!std::filesystem::exists(folder_ / entry.file, error)) {
        return false;
    }
    shards_[entry.shard] = Shard{entry, nullptr};
    return true;
}

std::map<std::uint64_t, std::string> SealedShards::damaged() const {
    const std::lock_guard lock(mutex_);
    std::map<std::uint64_t, std::string> defects;
    for (const auto& [number, damaged] : damaged_) {
        defects[number] = damaged.defect;
    }
    return defects;
}

std::vector<StoreShard> SealedShards::list() const {
    const std::lock_guard lock(mutex_);
    std::vector<StoreShard> entries;
    entries.reserve(shards_.size());
    for (const auto& [number, shard] : shards_) {
        entries.push_back(shard.entry);
    }
    return entries;
}

std::optional<StoreShard> SealedShards::find(std::uint64_t shard) const {
    const std::lock_guard lock(mutex_);
    const auto found = shards_.find(shard);
    return found == shards_.end() ? std::nullopt : std::optional(found->second.entry);
}

bool SealedShards::has(std::uint64_t row) const {
    return row < codec_.manifest().rows && find(codec_.manifest().shard_of(row)).has_value();
}

Result<SealedShards::Row> SealedShards::row(std::uint64_t row) {
    if (row >= codec_.manifest().rows) {
        return invalid_input(folder_.string() + ": row " + std::to_string(row) + " is outside the dataset of " +
                             std::to_string(codec_.manifest().rows));
    }
    const std::uint64_t number = codec_.manifest().shard_of(row);
    std::shared_ptr<const ShardFile> file;
    {
        const std::lock_guard lock(mutex_);
        const auto found = shards_.find(number);
        if (const auto damaged = damaged_.find(number); damaged != damaged_.end()) {
            return io_error(damaged->second.defect);
        }
        if (found == shards_.end()) {
            return invalid_input(folder_.string() + ": row " + std::to_string(row) +
                                 " is not in the store: " + shard_file_name(number) + " is not sealed");
        }
        if (!found->second.file) {
            auto opened = ShardFile::open(folder_ / found->second.entry.file, codec_, number);
            if (!opened) {
                return opened.error();
            }
            found->second.file = std::move(*opened);
        }
        file = found->second.file;
    }
    auto view = file->row(row);
    if (!view) {
        return view.error();
    }
    return Row{std::move(*view), std::move(file)};
}

}  // namespace distilld
