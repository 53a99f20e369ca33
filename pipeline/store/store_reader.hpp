#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "pipeline/core/micro_batch.hpp"
#include "pipeline/store/manifest.hpp"

namespace distilld {

/// Reads what writers have sealed and, while nobody writes the store, the whole rows that are in no sealed shard yet.
/// Files are memory-mapped, so that all readers on a machine share the page cache. Any thread, several at once.
class StoreReader {
  public:
    virtual ~StoreReader() = default;

    [[nodiscard]] virtual const StoreManifest& manifest() const = 0;
    [[nodiscard]] virtual const std::filesystem::path& folder() const = 0;

    /// Shards that were sealed when refresh() looked last, by their number.
    [[nodiscard]] virtual std::vector<StoreShard> shards() const = 0;
    [[nodiscard]] virtual std::uint64_t sealed_rows() const = 0;
    /// Those and the others that can be read.
    [[nodiscard]] virtual std::uint64_t held_rows() const = 0;
    /// Whether a process was writing the store when refresh() looked last, as far as file locks tell. Nobody writes one
    /// that is whole.
    [[nodiscard]] virtual bool has_writer() const = 0;
    /// It can be read.
    [[nodiscard]] virtual bool has(std::uint64_t row) const = 0;
    /// Shards that were sealed and whose file has another size: what is wrong with it, by number. Their rows are not
    /// there, until a writer has written them again.
    [[nodiscard]] virtual std::map<std::uint64_t, std::string> damaged() const = 0;

    /// Looks for shards that were sealed since, and for what writers have left: true when there is something.
    virtual Result<bool> refresh() = 0;

    /// The targets of batch.row_ids as RowCodec::decode() describes them. The output's memory goes back to the reader
    /// when its owner does and is used again. A row's checksum is verified when it is read first. Errors name file and
    /// row: a row that is not there (invalid_input), one that is damaged (io), one whose positions are not those of
    /// the batch's labels (invalid_input: another dataset).
    [[nodiscard]] virtual Result<TeacherTargets> read(const TokenBatch& batch) = 0;

    /// A batch that read() takes when the dataset is not at hand: labels are 0 at the positions that are stored, ids 0.
    [[nodiscard]] virtual Result<TokenBatch> batch_of(const std::vector<std::uint64_t>& rows) = 0;
};

/// Errors name the file: a folder without a store, a manifest that cannot be read.
Result<std::unique_ptr<StoreReader>> open_store_reader(const std::filesystem::path& folder);

}  // namespace distilld
