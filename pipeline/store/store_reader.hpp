#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "pipeline/core/micro_batch.hpp"
#include "pipeline/store/formats/row_codec.hpp"
#include "pipeline/store/formats/target_buffers.hpp"
#include "pipeline/store/manifest.hpp"
#include "pipeline/store/sealed_shards.hpp"
#include "pipeline/store/unsealed_rows.hpp"

namespace distilld {

/// Reads sealed shards and, while no process writes the store, also whole rows of unsealed shards. Files are
/// memory-mapped, so that all readers on a machine share the page cache. Any thread, several at once.
class StoreReader {
  public:
    /// Does not call refresh(), unlike open_store_reader().
    StoreReader(std::filesystem::path folder, const StoreManifest& manifest);

    [[nodiscard]] const StoreManifest& manifest() const { return codec_.manifest(); }
    [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }

    /// The shards sealed at the last refresh().
    [[nodiscard]] std::vector<StoreShard> shards() const { return shards_.list(); }
    [[nodiscard]] std::uint64_t sealed_rows() const;
    /// Number of readable rows, including unsealed ones.
    [[nodiscard]] std::uint64_t held_rows() const { return sealed_rows() + unsealed_.count(); }
    /// Whether a process was writing the store at the last refresh(), according to file locks. False for a complete
    /// store.
    [[nodiscard]] bool has_writer() const { return has_writer_; }
    /// Whether the row can be read.
    [[nodiscard]] bool has(std::uint64_t row) const { return shards_.has(row) || unsealed_.has(row); }
    /// Sealed shards with a file of the wrong size, by number: what is wrong. Their rows are missing until a writer
    /// writes them again.
    [[nodiscard]] std::map<std::uint64_t, std::string> damaged() const { return shards_.damaged(); }

    /// Looks for newly sealed shards and for rows of former writers: true if there are some.
    Result<bool> refresh();

    /// The targets of batch.row_ids, as RowCodec::decode() describes them. The output's memory returns to the reader
    /// with its owner and is reused. A row's checksum is verified at its first read. Errors name file and row: a
    /// missing row (invalid_input), a damaged row (io), a row with other positions than the batch's labels
    /// (invalid_input: another dataset).
    [[nodiscard]] Result<TeacherTargets> read(const TokenBatch& batch);

    /// A batch for read() without the dataset: labels are 0 at stored positions, ids are 0.
    [[nodiscard]] Result<TokenBatch> batch_of(const std::vector<std::uint64_t>& rows);

  private:
    struct Row {
        StoredRowView view;
        std::shared_ptr<const void> file;  ///< keeps the view's bytes
    };
    Result<Row> row(std::uint64_t number);

    const std::filesystem::path folder_;
    const RowCodec codec_;
    SealedShards shards_;
    UnsealedRows unsealed_;
    std::atomic<bool> has_writer_ = false;
    TargetBuffers buffers_;
};

/// Errors name the file: a folder without a store, a manifest that cannot be read.
Result<std::unique_ptr<StoreReader>> open_store_reader(const std::filesystem::path& folder);

}  // namespace distilld
