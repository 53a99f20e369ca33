#include "pipeline/store/shard_file.hpp"

#include <algorithm>
#include <map>

#include "base/files/files.hpp"
#include "base/safetensors_header.hpp"
#include "base/sha256.hpp"
#include "pipeline/store/formats/position_format.hpp"

namespace distilld {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20U;
constexpr const char* kMask = "mask";
constexpr const char* kRowStarts = "row_starts";
constexpr const char* kChecksums = "checksums";

std::string starts_name(const StoreStream& stream) {
    return stream.name + "_starts";
}

const char* dtype_name(ElementType type) {
    switch (type) {
        case ElementType::f16:
            return "F16";
        case ElementType::bf16:
            return "BF16";
        case ElementType::f32:
            return "F32";
        case ElementType::i32:
            return "I32";
        case ElementType::i64:
            return "I64";
        default:
            return "U8";
    }
}

std::uint64_t mask_bytes(const StoreManifest& manifest) {
    return (std::uint64_t{manifest.sequence_length} + 7) / 8;
}

/// Name, dtype and shape of a tensor.
using Tensor = SafetensorsTensor;

Tensor tensor(std::string name, ElementType type, std::vector<std::uint64_t> shape) {
    Tensor result;
    result.name = std::move(name);
    result.dtype = find_safetensors_dtype(dtype_name(type));
    result.shape.assign(shape.begin(), shape.end());
    return result;
}

/// The tensors of a shard; `elements` are the sizes of the ragged streams.
std::vector<Tensor> tensors_of(const RowCodec& codec, std::uint64_t rows, std::uint64_t tokens,
                               std::span<const std::uint64_t> elements) {
    std::vector<Tensor> tensors{tensor(kMask, ElementType::u8, {rows, mask_bytes(codec.manifest())}),
                                tensor(kRowStarts, ElementType::i64, {rows + 1}),
                                tensor(kChecksums, ElementType::i64, {rows})};
    for (std::size_t i = 0; i < codec.streams().size(); ++i) {
        const StoreStream& stream = codec.streams()[i];
        if (stream.width == 0) {
            tensors.push_back(tensor(stream.name, stream.type, {elements[i]}));
            tensors.push_back(tensor(starts_name(stream), ElementType::i64, {rows + 1}));
        } else if (stream.width == 1) {
            tensors.push_back(tensor(stream.name, stream.type, {tokens}));
        } else {
            tensors.push_back(tensor(stream.name, stream.type, {tokens, stream.width}));
        }
    }
    return tensors;
}

/// Buffers small writes, and computes the SHA-256 of the file.
class ShardOutput {
  public:
    explicit ShardOutput(AtomicFile& file) : file_(file) {}

    void write(std::span<const std::byte> bytes) {
        if (!result_) {
            return;
        }
        sha_.add(bytes);
        size_ += bytes.size();
        if (buffer_.size() + bytes.size() > kBufferBytes) {
            flush();
        }
        if (bytes.size() > kBufferBytes) {
            result_ = result_ ? file_.write(bytes) : result_;
        } else {
            buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
        }
    }
    void write(std::int64_t number) { write(std::as_bytes(std::span(&number, 1))); }

    Result<void> finish() {
        flush();
        return result_ ? file_.sync() : result_;
    }
    [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
    [[nodiscard]] std::string sha256() { return sha_.hex(); }

  private:
    void flush() {
        result_ = result_ ? file_.write(std::span<const std::byte>(buffer_)) : result_;
        buffer_.clear();
    }

    AtomicFile& file_;
    Sha256 sha_;
    std::vector<std::byte> buffer_;
    std::uint64_t size_ = 0;
    Result<void> result_;
};

/// The bytes of one tensor, row by row.
void write_tensor(ShardOutput& out, const std::string& name, const RowCodec& codec,
                  std::span<const StoredRowView> rows) {
    if (name == kMask) {
        for (const StoredRowView& row : rows) {
            out.write(row.mask);
        }
        return;
    }
    if (name == kChecksums) {
        for (const StoredRowView& row : rows) {
            out.write(std::int64_t{checksum_of(row)});
        }
        return;
    }
    if (name == kRowStarts) {
        std::int64_t at = 0;
        out.write(at);
        for (const StoredRowView& row : rows) {
            out.write(at += row.tokens);
        }
        return;
    }
    for (std::size_t i = 0; i < codec.streams().size(); ++i) {
        const StoreStream& stream = codec.streams()[i];
        if (name == stream.name) {
            for (const StoredRowView& row : rows) {
                out.write(row.streams[i]);
            }
        } else if (name == starts_name(stream)) {
            std::int64_t at = 0;
            out.write(at);
            for (const StoredRowView& row : rows) {
                out.write(at += static_cast<std::int64_t>(row.streams[i].size() / element_size(stream.type)));
            }
        }
    }
}

}  // namespace

std::string shard_file_name(std::uint64_t shard) {
    const std::string number = std::to_string(shard);
    return "shard-" + std::string(number.size() < 6 ? 6 - number.size() : 0, '0') + number + ".safetensors";
}

std::uint64_t rows_of_shard(const StoreManifest& manifest, std::uint64_t shard) {
    const std::uint64_t first = shard * manifest.shard_rows;
    return std::min<std::uint64_t>(manifest.shard_rows, manifest.rows - first);
}

Result<PreparedShard> prepare_shard(const std::filesystem::path& folder, const RowCodec& codec, std::uint64_t shard,
                                    std::span<const StoredRowView> rows) {
    StoreShard sealed;
    sealed.shard = shard;
    sealed.file = shard_file_name(shard);
    sealed.first_row = shard * codec.manifest().shard_rows;
    sealed.rows = rows.size();
    std::vector<std::uint64_t> elements(codec.streams().size());
    for (const StoredRowView& row : rows) {
        sealed.tokens += row.tokens;
        for (std::size_t i = 0; i < elements.size(); ++i) {
            elements[i] += row.streams[i].size() / element_size(codec.streams()[i].type);
        }
    }
    const std::filesystem::path path = folder / sealed.file;
    SafetensorsHeader header;
    header.tensors = tensors_of(codec, sealed.rows, sealed.tokens, elements);
    header.metadata = {{"format", "distilld-store"},
                       {"store_format", to_string(codec.manifest().format)},
                       {"values", to_string(codec.manifest().values)},
                       {"vocabulary", std::to_string(codec.manifest().vocabulary)},
                       {"first_row", std::to_string(sealed.first_row)}};
    const auto head = write_safetensors_header(header, path);
    if (!head) {
        return head.error();
    }
    auto file = AtomicFile::create(path);
    if (!file) {
        return file.error();
    }
    ShardOutput out(*file);
    out.write(std::as_bytes(std::span(*head)));
    for (const Tensor& entry : header.tensors) {
        write_tensor(out, entry.name, codec, rows);
    }
    if (auto finished = out.finish(); !finished) {
        return finished.error();
    }
    sealed.bytes = out.size();
    sealed.sha256 = out.sha256();
    return PreparedShard{std::move(sealed), std::move(*file)};
}

ShardFile::ShardFile(std::filesystem::path path, MappedFile file, const RowCodec& codec, std::uint64_t shard)
    : path_(std::move(path)),
      file_(std::move(file)),
      codec_(codec),
      first_row_(shard * codec.manifest().shard_rows),
      rows_(rows_of_shard(codec.manifest(), shard)),
      mask_bytes_(mask_bytes(codec.manifest())),
      verified_(rows_) {}

Result<std::unique_ptr<ShardFile>> ShardFile::open(const std::filesystem::path& path, const RowCodec& codec,
                                                   std::uint64_t shard) {
    auto file = MappedFile::open(path);
    if (!file) {
        return file.error();
    }
    std::unique_ptr<ShardFile> opened(new ShardFile(path, std::move(*file), codec, shard));
    if (auto read = opened->read_header(); !read) {
        return read.error();
    }
    return opened;
}

Result<void> ShardFile::read_header() {
    const auto header = parse_safetensors_header(file_.bytes(), path_);
    if (!header) {
        return header.error();
    }
    std::map<std::string, const Tensor*> by_name;
    for (const Tensor& entry : header->tensors) {
        by_name.emplace(entry.name, &entry);
    }
    // Sizes that vary by shard are taken from the file; everything else must match the manifest.
    const auto first_size = [&](const std::string& name) -> std::uint64_t {
        const auto found = by_name.find(name);
        return found == by_name.end() || found->second->shape.empty()
                   ? 0
                   : static_cast<std::uint64_t>(found->second->shape.front());
    };
    const auto bytes_of = [&](const std::string& name) {
        const Tensor& entry = *by_name.at(name);
        return file_.bytes().subspan(entry.begin, entry.bytes);
    };
    std::vector<std::uint64_t> elements;
    for (const StoreStream& stream : codec_.streams()) {
        elements.push_back(stream.width == 0 ? first_size(stream.name) : 0);
        tokens_ = stream.width != 0 ? first_size(stream.name) : tokens_;
    }
    const auto expected = tensors_of(codec_, rows_, tokens_, elements);
    for (const Tensor& wanted : expected) {
        const auto found = by_name.find(wanted.name);
        if (found == by_name.end() || found->second->dtype != wanted.dtype || found->second->shape != wanted.shape) {
            return invalid_input(path_.string() + ": tensor " + wanted.name +
                                 (found == by_name.end() ? " is missing" : " does not have the dtype and shape") +
                                 " of a shard of this store");
        }
    }
    if (by_name.size() != expected.size()) {
        return invalid_input(path_.string() + ": has tensors that do not belong to a shard");
    }
    mask_ = bytes_of(kMask);
    row_starts_ = bytes_of(kRowStarts);
    checksums_ = bytes_of(kChecksums);
    if (auto checked = check_starts(row_starts_, tokens_, kRowStarts); !checked) {
        return checked;
    }
    for (std::size_t i = 0; i < elements.size(); ++i) {
        const StoreStream& stream = codec_.streams()[i];
        Stream read;
        read.bytes = bytes_of(stream.name);
        read.element_bytes = element_size(stream.type);
        read.position_bytes = stream.width * read.element_bytes;
        if (stream.width == 0) {
            read.starts = bytes_of(starts_name(stream));
            if (auto checked = check_starts(read.starts, elements[i], starts_name(stream)); !checked) {
                return checked;
            }
        }
        streams_.push_back(read);
    }
    return {};
}

Result<void> ShardFile::check_starts(std::span<const std::byte> starts, std::uint64_t end,
                                     const std::string& name) const {
    std::uint64_t before = 0;
    for (std::uint64_t i = 0; i <= rows_; ++i) {
        const auto start = load_value<std::uint64_t>(starts, i);
        if (start < before || (i == 0 && start != 0) || (i == rows_ && start != end)) {
            return invalid_input(path_.string() + ": " + name + "[" + std::to_string(i) + "] is " +
                                 std::to_string(start) + ", where no row can begin");
        }
        before = start;
    }
    return {};
}

Result<StoredRowView> ShardFile::row(std::uint64_t row) const {
    const std::uint64_t place = row - first_row_;
    StoredRowView view;
    view.row = row;
    const auto begin = load_value<std::uint64_t>(row_starts_, place);
    const auto end = load_value<std::uint64_t>(row_starts_, place + 1);
    view.tokens = static_cast<std::uint32_t>(end - begin);
    view.mask = mask_.subspan(place * mask_bytes_, mask_bytes_);
    view.streams.reserve(streams_.size());
    for (const Stream& stream : streams_) {
        if (stream.starts.empty()) {
            view.streams.push_back(
                stream.bytes.subspan(begin * stream.position_bytes, (end - begin) * stream.position_bytes));
        } else {
            const auto first = load_value<std::uint64_t>(stream.starts, place);
            const auto last = load_value<std::uint64_t>(stream.starts, place + 1);
            view.streams.push_back(
                stream.bytes.subspan(first * stream.element_bytes, (last - first) * stream.element_bytes));
        }
    }
    if (!verified_[place].load(std::memory_order_relaxed)) {
        const auto failure = [&](const std::string& what) {
            return io_error(path_.string() + ": row " + std::to_string(row) + " is damaged: " + what);
        };
        if (checksum_of(view) != load_value<std::uint64_t>(checksums_, place)) {
            return failure("its checksum does not match");
        }
        if (auto defect = codec_.find_defect(view)) {
            return failure(*defect);
        }
        verified_[place].store(true, std::memory_order_relaxed);
    }
    return view;
}

}  // namespace distilld
