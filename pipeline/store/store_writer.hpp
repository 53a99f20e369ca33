#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "pipeline/core/micro_batch.hpp"
#include "pipeline/store/formats/row_codec.hpp"
#include "pipeline/store/manifest.hpp"
#include "pipeline/store/shard_leases.hpp"

namespace distilld {

/// Makes a change of the store if its writer was not replaced; otherwise an error.
using StoreGuard = std::function<Result<void>(const std::function<Result<void>()>& change)>;

struct StoreWriterOptions {
    SameTeacher same_teacher;
    /// Several processes, here or on other nodes, write the folder at once: each adds the rows that it claimed.
    bool shared = false;
    ShardLeaseOptions leases;  ///< when shared
    StoreGuard guard{};        ///< when not shared: seals each shard; empty: nobody can replace the writer
};

/// Rows that the caller should request.
struct StoreClaim {
    std::vector<std::uint64_t> rows;  ///< in the dataset's order
    std::uint64_t others_shards = 0;  ///< unsealed shards leased by other writers
    std::string other;                ///< one of these writers, for users
    bool last = false;                ///< nothing more to claim
};

/// Progress of a store.
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
/// Added rows, in any order, are written to the file of their unsealed shard (DIR/shard-NNNNNN.part) at once, so memory
/// holds only an index of 16 bytes per row, and a killed process loses none. A row torn by a crash of the machine is
/// detected by its checksum and needed again. A complete shard is sealed: written under a temporary name, fsync,
/// rename, fsync of the folder, then its line in shards.jsonl; the .part is removed. The bytes of a sealed shard depend
/// only on its rows, not on order, batches or restarts.
///
/// One writer per folder (FolderLock, file `lock`), or several that share it: each holds leases of its shards
/// (ShardLeases), keeps their rows in its own files, and continues with the rows of a dead one. The holder of a lease
/// publishes the shard under the leases' lock, so none appears twice. Any thread, several at once: add(), read() and
/// sync() wait for each other, and add() may take as long as writing a shard; needs() and progress() never wait. Errors
/// of kind disk_full can be retried: added rows stay, others can be added again.
class StoreWriter {
  public:
    virtual ~StoreWriter() = default;

    /// As stored: complete, with its shard_rows.
    [[nodiscard]] virtual const StoreManifest& manifest() const = 0;
    [[nodiscard]] virtual const RowCodec& codec() const = 0;

    /// Whether the row is not in the store, sealed or not. Rows outside the dataset are not needed.
    [[nodiscard]] virtual bool needs(std::uint64_t row) const = 0;
    [[nodiscard]] virtual StoreProgress progress() const = 0;

    /// Adds rows that codec().encode() made. Existing rows and those of another writer are ignored. Seals complete
    /// shards; after a failure, the next add() tries again.
    virtual Result<void> add(std::span<const StoredRow> rows) = 0;

    /// The rows to request next; `more`: the caller has capacity. For a shared store: a free shard, until all are
    /// sealed; call it repeatedly, because it also is the heartbeat and updates what others have sealed. Otherwise: all
    /// needed rows, once.
    virtual Result<StoreClaim> claim(bool more) = 0;

    /// Encodes and adds.
    Result<void> add(const TokenBatch& batch, const TeacherTargets& targets) {
        const auto rows = codec().encode(batch, targets);
        return rows ? add(*rows) : rows.error();
    }

    /// Rows that are in the store, sealed or not, as a StoreReader returns them, for a process that reads its own rows.
    /// A missing row is an error.
    [[nodiscard]] virtual Result<TeacherTargets> read(const TokenBatch& batch) = 0;

    /// A later attempt of the job writes the store, and all changes have failed since. Any thread.
    [[nodiscard]] virtual bool is_replaced() const { return false; }

    /// Makes unsealed rows durable against a crash of the machine (a killed process loses none), and retries shards
    /// that could not be sealed.
    virtual Result<void> sync() = 0;
};

/// Creates the folder, or continues its store. The error names the field that differs (invalid_input), or is io if
/// another process writes there and either of the two does not share the folder. `wanted` need not be complete
/// (complete_manifest()); an existing store keeps its shard_rows.
Result<std::unique_ptr<StoreWriter>> open_store_writer(const std::filesystem::path& folder, const StoreManifest& wanted,
                                                       StoreWriterOptions options = {});

}  // namespace distilld
