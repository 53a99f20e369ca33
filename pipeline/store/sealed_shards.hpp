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
#include "pipeline/store/manifest.hpp"
#include "pipeline/store/row_codec.hpp"
#include "pipeline/store/shard_file.hpp"

namespace distilld {

/// DIR/shards.jsonl
[[nodiscard]] std::filesystem::path shard_list_file(const std::filesystem::path& folder);

/// The lines from `offset` on, which is moved behind the last whole one; the one that is being written is left. The
/// error names file and line.
Result<std::vector<StoreShard>> read_shard_list(const std::filesystem::path& folder, const StoreManifest& manifest,
                                                std::uint64_t& offset);

/// Cuts off a last line that an earlier writer did not finish. Nobody else may be appending.
Result<void> cut_torn_line(const std::filesystem::path& folder);

/// Appends a line durably; when it cannot, the file is as it was. Nobody else may be appending.
Result<void> append_to_shard_list(const std::filesystem::path& folder, const StoreShard& shard);

/// What is wrong with the file of a sealed shard, as far as its size tells; nothing where it is missing.
[[nodiscard]] std::optional<std::string> wrong_size(const std::filesystem::path& folder, const StoreShard& entry);

/// The sealed shards of a folder: those of the list whose file is there, with the size that the list says. Any thread.
class SealedShards {
  public:
    /// `codec` must outlive it.
    SealedShards(std::filesystem::path folder, const RowCodec& codec);

    /// Looks for new lines of the list, and again at damaged files: true when there is a file more that is whole.
    Result<bool> refresh();

    [[nodiscard]] std::vector<StoreShard> list() const;
    [[nodiscard]] std::optional<StoreShard> find(std::uint64_t shard) const;
    [[nodiscard]] bool has(std::uint64_t row) const;
    /// Shards of the list whose file has another size, which are not among the sealed ones: what is wrong, by number.
    [[nodiscard]] std::map<std::uint64_t, std::string> damaged() const;

    struct Row {
        StoredRowView view;
        std::shared_ptr<const ShardFile> file;  ///< keeps the view's bytes
    };
    /// Maps the row's shard if it is not yet, and verifies the row. An error (invalid_input) for a row that is not
    /// sealed.
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
