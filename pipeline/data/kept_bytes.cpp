#include "pipeline/data/kept_bytes.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/crc32c.hpp"
#include "base/open_file.hpp"

namespace distilld {

std::unique_ptr<const KeptBytes> KeptBytes::in_memory(std::vector<std::byte> bytes) {
    auto kept = std::unique_ptr<KeptBytes>(new KeptBytes());
    kept->own_ = std::move(bytes);
    kept->bytes_ = kept->own_;
    return kept;
}

Result<std::unique_ptr<const KeptBytes>> KeptBytes::map(const std::filesystem::path& file, std::uint64_t size,
                                                        std::uint32_t sum, const std::filesystem::path& lies_in) {
    Result<MappedFile> map = MappedFile::open(file);
    if (!map) {
        return map.error();
    }
    const std::uint64_t blocks = blocks_of(size);
    const std::uint64_t there = map->bytes().size();
    if (there < size || there - size != blocks * sizeof(std::uint32_t)) {
        return io_error(file.string() + ": has " + std::to_string(there) + " bytes, not those that were written");
    }
    auto kept = std::unique_ptr<KeptBytes>(new KeptBytes());
    kept->bytes_ = map->bytes().first(size);
    kept->sums_ = map->bytes().subspan(size);
    if (crc32c(kept->sums_) != sum) {
        return io_error(file.string() + ": its checksums are damaged");
    }
    kept->map_ = std::move(*map);
    kept->checked_ = std::vector<std::atomic<bool>>(blocks);
    kept->file_ = lies_in / file.filename();
    return std::unique_ptr<const KeptBytes>(std::move(kept));
}

std::span<const std::byte> KeptBytes::part(std::uint64_t first, std::uint64_t count) const {
    if (first > bytes_.size() || count > bytes_.size() - first) {
        throw std::out_of_range("bytes " + std::to_string(first) + " and behind of " + std::to_string(bytes_.size()));
    }
    if (!sums_.empty() && count != 0) {
        const std::uint64_t last = (first + count - 1) / kBlockBytes;
        for (std::uint64_t block = first / kBlockBytes; block <= last; ++block) {
            if (checked_[block].load(std::memory_order_relaxed)) {
                continue;
            }
            if (!is_good(block)) {
                refuse(block);
            }
            checked_[block].store(true, std::memory_order_relaxed);
        }
    }
    return bytes_.subspan(first, count);
}

bool KeptBytes::is_good(std::uint64_t block) const {
    const std::uint64_t begin = block * kBlockBytes;
    const auto bytes = bytes_.subspan(begin, std::min<std::uint64_t>(kBlockBytes, bytes_.size() - begin));
    std::uint32_t sum = 0;
    std::memcpy(&sum, sums_.data() + block * sizeof sum, sizeof sum);
    return crc32c(bytes) == sum;
}

void KeptBytes::refuse(std::uint64_t block) const {
    static_cast<void>(remove_entry(file_.parent_path() / kTokenIndex));
    throw ErrorException(
        io_error(file_.string() + ": is damaged from byte " + std::to_string(block * kBlockBytes) +
                 " on: the disk gave back what was not written; resumed, the job reads its data anew"));
}

}  // namespace distilld
