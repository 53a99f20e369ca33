#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "pipeline/core/micro_batch.hpp"
#include "pipeline/store/manifest.hpp"
#include "pipeline/store/row_codec.hpp"
#include "pipeline/store/shard_leases.hpp"
#include "pipeline/store/store_agreement.hpp"

namespace distilld {

struct StoreWriterOptions {
    SameTeacher same_teacher;
    /// Several writers of the folder at once, here or on other nodes: each adds the rows that it has claimed.
    bool shared = false;
    ShardLeaseOptions leases;  ///< when shared
};

/// Rows that are the caller's to ask for.
struct StoreClaim {
    std::vector<std::uint64_t> rows;  ///< in the dataset's order
    std::uint64_t others_shards = 0;  ///< that are left, and other writers have
    std::string other;                ///< one of those, for people
    bool last = false;                ///< there will be nothing more to claim
};

/// What has been written of a store.
struct StoreProgress {
    std::uint64_t rows = 0;         ///< of the dataset
    std::uint64_t held_rows = 0;    ///< in the store, sealed or not
    std::uint64_t sealed_rows = 0;  ///< in sealed shards, which readers see
    std::uint64_t shards = 0;
    std::uint64_t sealed_shards = 0;
    std::uint64_t sealed_tokens = 0;
    std::uint64_t sealed_bytes = 0;
};

/// Writes the rows of one dataset into a folder: DIR/manifest.json, DIR/shards.jsonl and DIR/shard-NNNNNN.safetensors.
///
/// A row that is added goes to the file of its shard that is not sealed yet (DIR/shard-NNNNNN.part) at once, so that
/// memory holds an index of 16 bytes a row, in whichever order rows come, and the rows outlive the process, killed or
/// not; a row torn by a crash of the machine is found by its checksum and is needed again. When all rows of a shard are
/// there it is sealed: written under a temporary name, fsync, rename, fsync of the folder, then its line in
/// shards.jsonl; the .part goes. A sealed shard's bytes depend on its rows alone: not on their order, on batches or on
/// how often the writer was restarted.
///
/// One writer a folder (FolderLock, file `lock`), or several that share it: each has leases of the shards that it has
/// claimed (ShardLeases), keeps their rows in files of its own, and is let go on with the rows that a dead one has
/// left. Shards appear, and are listed, under the leases' lock by whoever has the lease then: none twice. Any thread,
/// several at once: add(), read() and sync() wait for each other, and add() may take as long as it takes to write a
/// shard; needs() and progress() wait for nobody. Errors of kind disk_full are worth another try: what was added stays
/// added, what was not can be added again.
class StoreWriter {
  public:
    virtual ~StoreWriter() = default;

    /// As it stands in the store: completed, with its shard_rows.
    [[nodiscard]] virtual const StoreManifest& manifest() const = 0;
    [[nodiscard]] virtual const RowCodec& codec() const = 0;

    /// Not in the store yet, sealed or not. Rows outside the dataset are not needed.
    [[nodiscard]] virtual bool needs(std::uint64_t row) const = 0;
    [[nodiscard]] virtual StoreProgress progress() const = 0;

    /// Adds rows that codec().encode() made. Those that are there already, or are another writer's, are passed over.
    /// Seals shards that become whole; when that failed last time, the next add() tries again.
    virtual Result<void> add(std::span<const StoredRow> rows) = 0;

    /// What the caller shall ask for next; `more`: it has room for that. Of a writer that shares its store the shard
    /// that nobody has, until all are sealed; to be called again and again meanwhile, since it shows that we live and
    /// what others have sealed. Of one that does not, all that is needed, once.
    virtual Result<StoreClaim> claim(bool more) = 0;

    /// encode and add.
    Result<void> add(const TokenBatch& batch, const TeacherTargets& targets);

    /// Rows that are in the store, sealed or not, as a StoreReader gives them: for a process that goes on reading what
    /// it has written. A row that needs() is an error.
    [[nodiscard]] virtual Result<TeacherTargets> read(const TokenBatch& batch) = 0;

    /// Makes rows of shards that are not sealed durable against a crash of the machine (a killed process loses none),
    /// and tries shards again that could not be sealed.
    virtual Result<void> sync() = 0;
};

/// Makes the folder, or goes on with the store that is in it. An error (invalid_input) names the field in which that
/// one is of other data; io when another process writes there and does not share it, or we do not. `wanted` need not be
/// complete (complete_manifest()); of a store that exists its own shard_rows holds.
Result<std::unique_ptr<StoreWriter>> open_store_writer(const std::filesystem::path& folder, const StoreManifest& wanted,
                                                       StoreWriterOptions options = {});

}  // namespace distilld
