#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "pipeline/store/formats/row_codec.hpp"

namespace distilld {

/// The rows of an unsealed shard, in DIR/shard-NNNNNN.part: one record after the other, in the order of append(). A row
/// is in the file when append() returns, so a killed process loses none. If several processes write a store, each has
/// its own files, DIR/shard-NNNNNN.OWNER.part. One thread at a time.
class UnsealedShard {
  public:
    /// shard-000012.part, shard-000012.OWNER.part
    [[nodiscard]] static std::string file_name(std::uint64_t shard, const std::string& owner = "");
    /// The shard of a file with such a name and any owner.
    [[nodiscard]] static std::optional<std::uint64_t> shard_of_file(const std::string& name);

    /// Existing records are loaded; a torn record and everything after it are truncated.
    static Result<UnsealedShard> open(const std::filesystem::path& folder, const RowCodec& codec, std::uint64_t shard,
                                      const std::string& owner = "");

    /// Copies whole rows of another owner's file that this one lacks, because the other process may still use its file.
    Result<void> adopt(const std::filesystem::path& file);

    [[nodiscard]] bool has(std::uint64_t row) const;
    [[nodiscard]] std::uint64_t held_rows() const noexcept { return held_; }
    [[nodiscard]] bool complete() const noexcept { return held_ == places_.size(); }

    /// Appends a row of the shard that is not held yet. On an error, the file is unchanged.
    Result<void> append(const StoredRow& row);

    /// A row of the file, verified.
    [[nodiscard]] Result<StoredRow> read(std::uint64_t row) const;

    struct Rows {
        std::vector<StoredRowView> views;  ///< all rows of the shard, in their order
        double kl_sum = 0;
        std::uint64_t kl_tokens = 0;
    };
    /// Calls `use` with all rows while the file is mapped. It must be complete; the error names a damaged row.
    Result<void> with_rows(const std::function<Result<void>(const Rows&)>& use) const;

    Result<void> sync() const;
    /// Removes the file. No rows are held afterwards.
    void remove();

  private:
    struct Place {
        std::uint64_t offset = 0;
        std::uint64_t bytes = 0;  ///< 0: not held
    };

    UnsealedShard(std::filesystem::path path, const RowCodec& codec, std::uint64_t shard);
    Result<void> find_rows();
    [[nodiscard]] Result<void> cut_off(std::uint64_t end) const;

    std::filesystem::path path_;
    const RowCodec* codec_;
    std::uint64_t first_row_;
    std::vector<Place> places_;
    std::uint64_t held_ = 0;
    std::uint64_t end_ = 0;  ///< end of the last whole record
};

/// A row in the file of an unsealed shard.
struct UnsealedRecord {
    StoredRowView view;
    double kl_sum = 0;
    std::uint64_t kl_tokens = 0;
    std::uint64_t bytes = 0;  ///< of the record
};
/// Size of the record at the front of `bytes`, from its head; nullopt if torn or damaged.
[[nodiscard]] std::optional<std::uint64_t> unsealed_record_bytes(std::span<const std::byte> bytes,
                                                                 const RowCodec& codec);
[[nodiscard]] std::size_t unsealed_head_bytes(const RowCodec& codec);
/// The record at the front of `bytes`, verified; nullopt if torn or damaged.
[[nodiscard]] std::optional<UnsealedRecord> read_unsealed_record(std::span<const std::byte> bytes,
                                                                 const RowCodec& codec);

/// The files with rows of each shard, including unfinished shard files of killed writers, which adopt() ignores.
using UnsealedFiles = std::map<std::uint64_t, std::vector<std::filesystem::path>>;
[[nodiscard]] UnsealedFiles find_unsealed_files(const std::filesystem::path& folder, const StoreManifest& manifest);
/// Files that cannot be removed are harmless.
void remove_files(const std::vector<std::filesystem::path>& files) noexcept;

}  // namespace distilld
