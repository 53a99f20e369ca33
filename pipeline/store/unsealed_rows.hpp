#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "base/error.hpp"
#include "base/files/mapped_file.hpp"
#include "pipeline/store/formats/row_codec.hpp"

namespace distilld {

/// Whole rows of unsealed shards, from the files of their writers (UnsealedShard). Any thread.
class UnsealedRows {
  public:
    /// `codec` must outlive it.
    UnsealedRows(std::filesystem::path folder, const RowCodec& codec);

    /// Reads files of a changed size, and drops shards for which `is_sealed` is true. True if there are new rows. A
    /// writer may be active: whole rows do not change.
    Result<bool> refresh(const std::function<bool(std::uint64_t shard)>& is_sealed);

    [[nodiscard]] bool has(std::uint64_t row) const;
    [[nodiscard]] std::uint64_t count() const;

    struct Row {
        StoredRowView view;
        std::shared_ptr<const MappedFile> file;  ///< keeps the view's bytes
    };
    /// A row for which has() is true, verified.
    [[nodiscard]] Result<Row> row(std::uint64_t row) const;

  private:
    struct Place {
        std::shared_ptr<const MappedFile> file;
        std::uint64_t offset = 0;
        std::uint64_t bytes = 0;
    };
    using Shard = std::map<std::uint64_t, Place>;

    Result<bool> look_at(const std::filesystem::path& file, std::uint64_t number);

    const std::filesystem::path folder_;
    const RowCodec& codec_;
    mutable std::mutex mutex_;
    std::map<std::uint64_t, Shard> shards_;
    std::map<std::string, std::uint64_t> seen_;  ///< file sizes at the last refresh()
};

}  // namespace distilld
