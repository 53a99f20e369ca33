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
#include "pipeline/store/row_codec.hpp"

namespace distilld {

/// The rows of a shard that is not sealed yet, in DIR/shard-NNNNNN.part: one record behind the other, in the order in
/// which they came. A row is there as soon as append() returns: a process that is killed loses none. Where several
/// processes write a store, each has files of its own, DIR/shard-NNNNNN.OWNER.part. One thread at a time.
class UnsealedShard {
  public:
    /// shard-000012.part, shard-000012.OWNER.part
    [[nodiscard]] static std::string file_name(std::uint64_t shard, const std::string& owner = "");
    /// Of which shard a file with such a name has rows, whoever the owner is.
    [[nodiscard]] static std::optional<std::uint64_t> shard_of_file(const std::string& name);

    /// What is in the file already, if there is one, is found again; a record that is torn, and all behind it, is cut
    /// off.
    static Result<UnsealedShard> open(const std::filesystem::path& folder, const RowCodec& codec, std::uint64_t shard,
                                      const std::string& owner = "");

    /// Takes the whole rows of another owner's file that this one lacks, as copies: whoever wrote that file may still
    /// believe that it is its own.
    Result<void> adopt(const std::filesystem::path& file);

    [[nodiscard]] bool has(std::uint64_t row) const;
    [[nodiscard]] std::uint64_t held_rows() const noexcept { return held_; }
    [[nodiscard]] bool complete() const noexcept { return held_ == places_.size(); }

    /// One row of the shard that it does not have. When it cannot be written whole, the file is as it was before.
    Result<void> append(const StoredRow& row);

    /// What the file holds of a row that it has, read from it and checked.
    [[nodiscard]] Result<StoredRow> read(std::uint64_t row) const;

    struct Rows {
        std::vector<StoredRowView> views;  ///< all rows of the shard, in their order
        double kl_sum = 0;
        std::uint64_t kl_tokens = 0;
    };
    /// Calls `use` with all rows while the file is mapped. It must be complete; the error names a row that is damaged.
    Result<void> with_rows(const std::function<Result<void>(const Rows&)>& use) const;

    Result<void> sync() const;
    /// Of the file. Nothing is held any more.
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
    std::uint64_t end_ = 0;  ///< of the last whole record
};

/// A row in such a file.
struct UnsealedRecord {
    StoredRowView view;
    double kl_sum = 0;
    std::uint64_t kl_tokens = 0;
    std::uint64_t bytes = 0;  ///< of the record
};
/// What the record at the front of `bytes` takes, by its head; nothing when that is torn or damaged.
[[nodiscard]] std::optional<std::uint64_t> unsealed_record_bytes(std::span<const std::byte> bytes,
                                                                 const RowCodec& codec);
[[nodiscard]] std::size_t unsealed_head_bytes(const RowCodec& codec);
/// The record at the front of `bytes`, verified; nothing when it is torn or damaged.
[[nodiscard]] std::optional<UnsealedRecord> read_unsealed_record(std::span<const std::byte> bytes,
                                                                 const RowCodec& codec);

/// By shard, the files with rows of it, and what was to become the shard when a writer was killed: rows of another
/// kind, which adopt() passes over.
using UnsealedFiles = std::map<std::uint64_t, std::vector<std::filesystem::path>>;
[[nodiscard]] UnsealedFiles find_unsealed_files(const std::filesystem::path& folder, const StoreManifest& manifest);
/// Those that cannot be removed do no harm.
void remove_files(const std::vector<std::filesystem::path>& files) noexcept;

}  // namespace distilld
