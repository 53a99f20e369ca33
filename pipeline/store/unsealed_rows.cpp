#include "pipeline/store/unsealed_rows.hpp"

#include <algorithm>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "base/files/open_file.hpp"
#include "base/files/read_at.hpp"
#include "pipeline/store/shard_file.hpp"
#include "pipeline/store/unsealed_shard.hpp"

namespace distilld {
namespace {

namespace fs = std::filesystem;

/// Returns fewer bytes at the end of the file, or if it cannot be read further.
std::vector<std::byte> bytes_at(int file, std::uint64_t offset, std::uint64_t size) {
    std::vector<std::byte> bytes(size);
    bytes.resize(read_at(file, bytes, offset));
    return bytes;
}

}  // namespace

UnsealedRows::UnsealedRows(fs::path folder, const RowCodec& codec) : folder_(std::move(folder)), codec_(codec) {}

Result<bool> UnsealedRows::refresh(const std::function<bool(std::uint64_t)>& is_sealed) {
    const std::lock_guard lock(mutex_);
    std::erase_if(shards_, [&](const auto& one) { return is_sealed(one.first); });
    bool more = false;
    for (auto& [number, files] : find_unsealed_files(folder_, codec_.manifest())) {
        if (is_sealed(number)) {
            continue;
        }
        // The order in which a writer takes them over: first the file without an owner.
        const auto order = [](const fs::path& file) { return std::pair(file.string().size(), file.string()); };
        std::ranges::sort(files, {}, order);
        for (const fs::path& file : files) {
            const auto looked = look_at(file, number);
            if (!looked) {
                return looked.error();
            }
            more = *looked || more;
        }
    }
    return more;
}

/// Reads without a mapping, because a new writer may truncate torn rows.
Result<bool> UnsealedRows::look_at(const fs::path& path, std::uint64_t number) {
    std::error_code gone;
    const std::uint64_t size = fs::file_size(path, gone);
    if (gone) {
        return false;
    }
    if (const auto [seen, is_new] = seen_.try_emplace(path.string(), size);
        !is_new && std::exchange(seen->second, size) == size) {
        return false;
    }
    const Result<Descriptor> opened = open_file(path, O_RDONLY);
    if (!opened) {
        return fs::exists(path, gone) ? Result<bool>(opened.error()) : Result<bool>(false);
    }
    const std::uint64_t first = number * codec_.manifest().shard_rows;
    const std::uint64_t end = first + rows_of_shard(codec_.manifest(), number);
    std::map<std::uint64_t, std::pair<std::uint64_t, std::uint64_t>> places;
    for (std::uint64_t at = 0; at < size;) {
        const auto bytes =
            unsealed_record_bytes(bytes_at(opened->get(), at, unsealed_head_bytes(codec_)), codec_).value_or(size);
        const auto record = bytes <= size - at ? bytes_at(opened->get(), at, bytes) : std::vector<std::byte>();
        const auto read = read_unsealed_record(record, codec_);
        if (!read || read->view.row < first || read->view.row >= end) {
            break;
        }
        places[read->view.row] = {at, bytes};
        at += bytes;
    }
    if (places.empty()) {
        return false;
    }
    auto mapped = MappedFile::open(path);
    if (!mapped) {
        return fs::exists(path, gone) ? Result<bool>(mapped.error()) : Result<bool>(false);
    }
    const auto file = std::make_shared<const MappedFile>(std::move(*mapped));
    bool more = false;
    for (const auto& [row, place] : places) {
        if (place.first + place.second <= file->bytes().size()) {
            more = shards_[number].try_emplace(row, Place{file, place.first, place.second}).second || more;
        }
    }
    return more;
}

bool UnsealedRows::has(std::uint64_t row) const {
    const std::lock_guard lock(mutex_);
    const auto found = shards_.find(codec_.manifest().shard_of(row));
    return found != shards_.end() && found->second.contains(row);
}

std::uint64_t UnsealedRows::count() const {
    const std::lock_guard lock(mutex_);
    std::uint64_t rows = 0;
    for (const auto& [number, shard] : shards_) {
        rows += shard.size();
    }
    return rows;
}

Result<UnsealedRows::Row> UnsealedRows::row(std::uint64_t row) const {
    Place place;
    {
        const std::lock_guard lock(mutex_);
        const auto shard = shards_.find(codec_.manifest().shard_of(row));
        if (shard == shards_.end() || !shard->second.contains(row)) {
            return invalid_input(folder_.string() + ": row " + std::to_string(row) + " is not in the store");
        }
        place = shard->second.at(row);
    }
    auto record = read_unsealed_record(place.file->bytes().subspan(place.offset, place.bytes), codec_);
    if (!record || record->view.row != row) {
        return io_error(folder_.string() + ": row " + std::to_string(row) +
                        ", which is not in a shard yet, is damaged");
    }
    return Row{std::move(record->view), std::move(place.file)};
}

}  // namespace distilld
