#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/files/files.hpp"
#include "base/files/mapped_file.hpp"
#include "pipeline/store/formats/row_codec.hpp"
#include "pipeline/store/manifest.hpp"

namespace distilld {

/// shard-000012.safetensors
[[nodiscard]] std::string shard_file_name(std::uint64_t shard);
/// Number of rows of a shard: the last shard may have fewer than shard_rows.
[[nodiscard]] std::uint64_t rows_of_shard(const StoreManifest& manifest, std::uint64_t shard);

/// A written shard under a temporary name; file.commit() renames it. `kl_sum` and `kl_tokens` stay 0.
struct PreparedShard {
    StoreShard entry;
    AtomicFile file;
};

/// Writes all rows of a shard, in order, for DIR/shard-NNNNNN.safetensors. The bytes depend only on the rows.
Result<PreparedShard> prepare_shard(const std::filesystem::path& folder, const RowCodec& codec, std::uint64_t shard,
                                    std::span<const StoredRowView> rows);

/// A sealed shard in memory. Any thread.
class ShardFile {
  public:
    /// Checks the header against the manifest: tensors, shapes, starts of rows. Errors name the file.
    static Result<std::unique_ptr<ShardFile>> open(const std::filesystem::path& path, const RowCodec& codec,
                                                   std::uint64_t shard);

    [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
    [[nodiscard]] std::uint64_t rows() const noexcept { return rows_; }
    [[nodiscard]] std::uint64_t tokens() const noexcept { return tokens_; }

    /// A row of the dataset, which must be in this shard. Its checksum and contents are verified the first time; the
    /// error (io) names file and row. The result points into the file, which must outlive it.
    [[nodiscard]] Result<StoredRowView> row(std::uint64_t row) const;

  private:
    struct Stream {
        std::span<const std::byte> bytes;
        std::span<const std::byte> starts;  ///< ragged: i64 [rows + 1], in elements
        std::uint64_t position_bytes = 0;   ///< for streams of fixed width
        std::uint64_t element_bytes = 1;
    };

    ShardFile(std::filesystem::path path, MappedFile file, const RowCodec& codec, std::uint64_t shard);
    Result<void> read_header();
    Result<void> check_starts(std::span<const std::byte> starts, std::uint64_t end, const std::string& name) const;

    std::filesystem::path path_;
    MappedFile file_;
    const RowCodec& codec_;
    std::uint64_t first_row_;
    std::uint64_t rows_;
    std::uint64_t tokens_ = 0;
    std::uint64_t mask_bytes_;
    std::span<const std::byte> row_starts_;
    std::span<const std::byte> checksums_;
    std::span<const std::byte> mask_;
    std::vector<Stream> streams_;
    mutable std::vector<std::atomic<bool>> verified_;
};

}  // namespace distilld
