#include "pipeline/store/unsealed_shard.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <string_view>
#include <system_error>

#include "base/crc32c.hpp"
#include "base/files/mapped_file.hpp"
#include "base/files/open_file.hpp"
#include "base/files/read_at.hpp"
#include "base/saturating.hpp"
#include "pipeline/store/formats/position_format.hpp"
#include "pipeline/store/shard_file.hpp"

namespace distilld {
namespace {

/// Header of each row. After it: a u64 length per stream, the mask, the streams.
struct RecordHead {
    std::uint64_t magic = 0;
    std::uint32_t head_checksum = 0;  ///< over the following fields and the lengths
    std::uint32_t row_checksum = 0;
    std::uint64_t row = 0;
    std::uint32_t tokens = 0;
    std::uint32_t streams = 0;
    double kl_sum = 0;
    std::uint64_t kl_tokens = 0;
};
static_assert(sizeof(RecordHead) == 48);

constexpr std::uint64_t kRowMagic = 0x31776F526C747344ULL;  // "DstlRow1"
constexpr std::size_t kSummedFrom = 12;

std::vector<std::byte> record_of(const StoredRow& row) {
    const StoredRowView view = view_of(row);
    RecordHead head{.magic = kRowMagic,
                    .row_checksum = checksum_of(view),
                    .row = row.row,
                    .tokens = row.tokens,
                    .streams = static_cast<std::uint32_t>(row.streams.size()),
                    .kl_sum = row.kl_sum,
                    .kl_tokens = row.kl_tokens};
    std::vector<std::byte> bytes;
    append_value(bytes, head);
    for (const auto& stream : row.streams) {
        append_value(bytes, std::uint64_t{stream.size()});
    }
    head.head_checksum = crc32c(std::span(bytes).subspan(kSummedFrom));
    std::memcpy(bytes.data(), &head, kSummedFrom);
    bytes.insert(bytes.end(), row.mask.begin(), row.mask.end());
    for (const auto& stream : row.streams) {
        bytes.insert(bytes.end(), stream.begin(), stream.end());
    }
    return bytes;
}

StoredRow copy_of(const UnsealedRecord& record) {
    StoredRow copy;
    copy.row = record.view.row;
    copy.tokens = record.view.tokens;
    copy.mask.assign(record.view.mask.begin(), record.view.mask.end());
    for (const auto stream : record.view.streams) {
        copy.streams.emplace_back(stream.begin(), stream.end());
    }
    copy.kl_sum = record.kl_sum;
    copy.kl_tokens = record.kl_tokens;
    return copy;
}

Error damaged_row(const std::filesystem::path& path, std::uint64_t row) {
    return io_error(path.string() + ": row " + std::to_string(row) + " is damaged: its checksum does not match");
}

/// The shard in a name that begins like shard-000012.
std::optional<std::uint64_t> shard_in(std::string_view name) {
    constexpr std::string_view kBeginning = "shard-";
    std::uint64_t shard = 0;
    if (!name.starts_with(kBeginning)) {
        return std::nullopt;
    }
    const char* const last = name.data() + name.size();
    const auto [end, error] = std::from_chars(name.data() + kBeginning.size(), last, shard);
    if (error != std::errc() || end == last || *end != '.') {
        return std::nullopt;
    }
    const std::string own = UnsealedShard::file_name(shard);
    const bool ours = name.starts_with(std::string_view(own).substr(0, own.find('.')));
    return ours ? std::optional(shard) : std::nullopt;
}

}  // namespace

std::size_t unsealed_head_bytes(const RowCodec& codec) {
    return sizeof(RecordHead) + codec.streams().size() * sizeof(std::uint64_t);
}

std::optional<std::uint64_t> unsealed_record_bytes(std::span<const std::byte> bytes, const RowCodec& codec) {
    const std::size_t streams = codec.streams().size();
    const std::size_t head_bytes = unsealed_head_bytes(codec);
    if (bytes.size() < head_bytes) {
        return std::nullopt;
    }
    const auto head = load_value<RecordHead>(bytes, 0);
    if (head.magic != kRowMagic || head.streams != streams ||
        head.head_checksum != crc32c(bytes.first(head_bytes).subspan(kSummedFrom))) {
        return std::nullopt;
    }
    std::uint64_t total = head_bytes + (std::uint64_t{codec.manifest().sequence_length} + 7) / 8;
    for (std::size_t i = 0; i < streams; ++i) {
        total = saturating_sum(total, load_value<std::uint64_t>(bytes.subspan(sizeof(RecordHead)), i));
    }
    return total;
}

std::optional<UnsealedRecord> read_unsealed_record(std::span<const std::byte> bytes, const RowCodec& codec) {
    const auto total = unsealed_record_bytes(bytes, codec);
    if (!total || *total > bytes.size()) {
        return std::nullopt;
    }
    const auto head = load_value<RecordHead>(bytes, 0);
    UnsealedRecord record;
    record.view.row = head.row;
    record.view.tokens = head.tokens;
    record.kl_sum = head.kl_sum;
    record.kl_tokens = head.kl_tokens;
    record.bytes = *total;
    std::size_t at = unsealed_head_bytes(codec);
    const auto take = [&](std::uint64_t size) {
        at += size;
        return bytes.subspan(at - size, size);
    };
    record.view.mask = take((std::uint64_t{codec.manifest().sequence_length} + 7) / 8);
    const auto lengths = bytes.subspan(sizeof(RecordHead));
    for (std::size_t i = 0; i < codec.streams().size(); ++i) {
        record.view.streams.push_back(take(load_value<std::uint64_t>(lengths, i)));
    }
    if (checksum_of(record.view) != head.row_checksum || codec.find_defect(record.view)) {
        return std::nullopt;
    }
    return record;
}

std::string UnsealedShard::file_name(std::uint64_t shard, const std::string& owner) {
    const std::string extension = (owner.empty() ? "" : "." + owner) + ".part";
    return std::filesystem::path(shard_file_name(shard)).replace_extension(extension).string();
}

std::optional<std::uint64_t> UnsealedShard::shard_of_file(const std::string& name) {
    return name.ends_with(".part") ? shard_in(name) : std::nullopt;
}

UnsealedShard::UnsealedShard(std::filesystem::path path, const RowCodec& codec, std::uint64_t shard)
    : path_(std::move(path)),
      codec_(&codec),
      first_row_(shard * codec.manifest().shard_rows),
      places_(rows_of_shard(codec.manifest(), shard)) {}

Result<UnsealedShard> UnsealedShard::open(const std::filesystem::path& folder, const RowCodec& codec,
                                          std::uint64_t shard, const std::string& owner) {
    UnsealedShard opened(folder / file_name(shard, owner), codec, shard);
    std::error_code error;
    if (std::filesystem::exists(opened.path_, error)) {
        if (auto found = opened.find_rows(); !found) {
            return found.error();
        }
    }
    return opened;
}

Result<void> UnsealedShard::find_rows() {
    const auto file = MappedFile::open(path_);
    if (!file) {
        return file.error();
    }
    const auto bytes = file->bytes();
    while (const auto record = read_unsealed_record(bytes.subspan(end_), *codec_)) {
        if (record->view.row < first_row_ || record->view.row >= first_row_ + places_.size()) {
            break;
        }
        Place& place = places_[record->view.row - first_row_];
        held_ += place.bytes == 0 ? 1 : 0;
        place = {end_, record->bytes};
        end_ += record->bytes;
    }
    return end_ < bytes.size() ? cut_off(end_) : Result<void>();
}

Result<void> UnsealedShard::cut_off(std::uint64_t end) const {
    const Result<Descriptor> file = open_file(path_, O_WRONLY);
    if (!file) {
        return file.error();
    }
    const bool cut = ::ftruncate(file->get(), static_cast<off_t>(end)) == 0;
    return cut ? Result<void>()
               : io_error(path_.string() + ": cannot cut off a torn row: " + std::generic_category().message(errno));
}

Result<void> UnsealedShard::adopt(const std::filesystem::path& path) {
    const auto file = MappedFile::open(path);
    if (!file) {
        return file.error();
    }
    const auto bytes = file->bytes();
    std::uint64_t at = 0;
    while (const auto record = read_unsealed_record(bytes.subspan(at), *codec_)) {
        at += record->bytes;
        const std::uint64_t row = record->view.row;
        if (row < first_row_ || row >= first_row_ + places_.size()) {
            break;
        }
        if (has(row)) {
            continue;
        }
        if (auto appended = append(copy_of(*record)); !appended) {
            return appended;
        }
    }
    return {};
}

bool UnsealedShard::has(std::uint64_t row) const {
    return row >= first_row_ && row - first_row_ < places_.size() && places_[row - first_row_].bytes != 0;
}

Result<void> UnsealedShard::append(const StoredRow& row) {
    const std::vector<std::byte> record = record_of(row);
    const Result<Descriptor> file = open_file(path_, O_WRONLY | O_CREAT);
    if (!file) {
        return file.error();
    }
    std::size_t written = 0;
    while (written < record.size()) {
        constexpr std::size_t kMaxWrite = std::size_t{1} << 30U;  // Linux transfers less than 2 GiB per call
        const auto count = ::pwrite(file->get(), record.data() + written, std::min(record.size() - written, kMaxWrite),
                                    static_cast<off_t>(end_ + written));
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count < 0) {
            const int number = errno;
            // The next row would overwrite a remainder, and the next open would cut it off.
            if (::ftruncate(file->get(), static_cast<off_t>(end_)) != 0) {
                return io_error(path_.string() +
                                ": cannot cut off a torn row: " + std::generic_category().message(errno));
            }
            return write_error(path_.string() + ": cannot write: " + std::generic_category().message(number), number);
        }
        written += static_cast<std::size_t>(count);
    }
    Place& place = places_[row.row - first_row_];
    held_ += place.bytes == 0 ? 1 : 0;
    place = {end_, record.size()};
    end_ += record.size();
    return {};
}

Result<StoredRow> UnsealedShard::read(std::uint64_t row) const {
    const Place& place = places_[row - first_row_];
    const Result<Descriptor> file = open_file(path_, O_RDONLY);
    if (!file) {
        return file.error();
    }
    std::vector<std::byte> bytes(place.bytes);
    if (auto read = read_all_at(file->get(), bytes, place.offset, path_, "row " + std::to_string(row)); !read) {
        return read.error();
    }
    const auto record = read_unsealed_record(bytes, *codec_);
    if (!record || record->view.row != row) {
        return damaged_row(path_, row);
    }
    return copy_of(*record);
}

Result<void> UnsealedShard::with_rows(const std::function<Result<void>(const Rows&)>& use) const {
    const auto file = MappedFile::open(path_);
    if (!file) {
        return file.error();
    }
    Rows rows;
    for (std::size_t i = 0; i < places_.size(); ++i) {
        const Place& place = places_[i];
        const auto bytes = file->bytes();
        const auto record = place.offset + place.bytes <= bytes.size()
                                ? read_unsealed_record(bytes.subspan(place.offset, place.bytes), *codec_)
                                : std::nullopt;
        if (!record || record->view.row != first_row_ + i) {
            return damaged_row(path_, first_row_ + i);
        }
        rows.kl_sum += record->kl_sum;
        rows.kl_tokens += record->kl_tokens;
        rows.views.push_back(record->view);
    }
    return use(rows);
}

Result<void> UnsealedShard::sync() const {
    if (held_ == 0) {
        return {};
    }
    const Result<Descriptor> file = open_file(path_, O_RDONLY);
    if (!file) {
        return file.error();
    }
    if (::fsync(file->get()) != 0) {
        return write_error(path_.string() + ": cannot make durable: " + std::generic_category().message(errno), errno);
    }
    return {};
}

void UnsealedShard::remove() {
    static_cast<void>(remove_entry(path_));
    std::ranges::fill(places_, Place{});
    held_ = 0;
    end_ = 0;
}

UnsealedFiles find_unsealed_files(const std::filesystem::path& folder, const StoreManifest& manifest) {
    UnsealedFiles files;
    const auto names = names_in(folder);
    for (const std::string& name : names ? *names : std::vector<std::string>()) {
        // Left by a writer that was killed while it wrote the shard's file.
        const bool temporary = name.starts_with('.') && name.ends_with(".tmp");
        const auto shard = temporary ? shard_in(std::string_view(name).substr(1)) : UnsealedShard::shard_of_file(name);
        if (shard && *shard < manifest.shard_count()) {
            files[*shard].push_back(folder / name);
        }
    }
    return files;
}

void remove_files(const std::vector<std::filesystem::path>& files) noexcept {
    for (const std::filesystem::path& file : files) {
        static_cast<void>(remove_entry(file));
    }
}

}  // namespace distilld
