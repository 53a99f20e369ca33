#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "pipeline/core/micro_batch.hpp"
#include "pipeline/store/formats/row_codec.hpp"
#include "pipeline/store/manifest.hpp"
#include "pipeline/store/shard_file.hpp"

namespace distilld {

/// DIR/shards.jsonl
[[nodiscard]] std::filesystem::path shard_list_file(const std::filesystem::path& folder);

/// Whether the list has a line, without reading it.
[[nodiscard]] bool lists_a_shard(const std::filesystem::path& folder);

/// Reads the lines from `offset` on, and moves it past the last complete line. An incomplete line is left. The error
/// names file and line.
Result<std::vector<StoreShard>> read_shard_list(const std::filesystem::path& folder, const StoreManifest& manifest,
                                                std::uint64_t& offset);

/// Cuts off an incomplete last line of an earlier writer. No other process may be appending.
Result<void> cut_torn_line(const std::filesystem::path& folder);

/// Appends a line durably; on an error, the file is unchanged. No other process may be appending.
Result<void> append_to_shard_list(const std::filesystem::path& folder, const StoreShard& shard);

/// What is wrong with the size of a sealed shard's file; nullopt if it is right or the file is missing.
[[nodiscard]] std::optional<std::string> wrong_size(const std::filesystem::path& folder, const StoreShard& entry);

/// The sealed shards of a folder: listed shards with a file of the listed size. Any thread.
class SealedShards {
  public:
    /// `codec` must outlive it.
    SealedShards(std::filesystem::path folder, const RowCodec& codec);

    /// Reads new lines of the list, and checks damaged files again. True if there are new files of the right size.
    Result<bool> refresh();

    [[nodiscard]] std::vector<StoreShard> list() const;
    [[nodiscard]] std::optional<StoreShard> find(std::uint64_t shard) const;
    [[nodiscard]] bool has(std::uint64_t row) const;
    /// Listed shards with a file of another size, which do not count as sealed: what is wrong, by number.
    [[nodiscard]] std::map<std::uint64_t, std::string> damaged() const;

    struct Row {
        StoredRowView view;
        std::shared_ptr<const ShardFile> file;  ///< keeps the view's bytes
    };
    /// Maps the row's shard if needed, and verifies the row. A row that is not sealed is an error (invalid_input).
    [[nodiscard]] Result<Row> row(std::uint64_t row);

  private:
    struct Shard {
        StoreShard entry;
        std::shared_ptr<const ShardFile> file;
    };

    const std::filesystem::path folder_;
    const RowCodec& codec_;
    mutable std::mutex mutex_;
    struct Damaged {
        StoreShard entry;
        std::string defect;
    };
    [[nodiscard]] bool take(const StoreShard& entry);

    std::map<std::uint64_t, Shard> shards_;
    std::map<std::uint64_t, Damaged> damaged_;
    std::uint64_t offset_ = 0;
};

}  // namespace distilld
