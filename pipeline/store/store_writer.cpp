#include "pipeline/store/store_writer.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "base/files/files.hpp"
#include "base/files/folder_lock.hpp"
#include "base/files/open_file.hpp"
#include "pipeline/store/held_rows.hpp"
#include "pipeline/store/manifest.hpp"
#include "pipeline/store/sealed_shards.hpp"
#include "pipeline/store/unsealed_shard.hpp"

namespace distilld {
namespace {

namespace fs = std::filesystem;

class Writer final : public StoreWriter {
  public:
    /// `leases`: of a writer that shares the folder; null if no other process writes there.
    Writer(fs::path folder, const StoreManifest& manifest, FolderLock lock, std::unique_ptr<ShardLeases> leases,
           StoreGuard guard)
        : folder_(std::move(folder)),
          lock_(std::move(lock)),
          leases_(std::move(leases)),
          guard_(std::move(guard)),
          codec_(manifest),
          sealed_(folder_, codec_),
          held_(manifest.rows) {}

    /// Finds rows of earlier writers; unsealed ones only if no other process can be writing them.
    Result<void> resume() {
        if (leases_) {
            const std::lock_guard guard(mutex_);
            return see_sealed();
        }
        ShardLeases::clear(folder_);
        if (auto cut = cut_torn_line(folder_); !cut) {
            return cut;
        }
        if (auto seen = see_sealed(); !seen) {
            return seen;
        }
        for (const auto& [shard, files] : left_files()) {
            if (auto taken = take_over(shard, files); !taken) {
                return taken;
            }
        }
        note_progress();
        return seal_complete();
    }

    const StoreManifest& manifest() const override { return codec_.manifest(); }
    const RowCodec& codec() const override { return codec_; }

    bool needs(std::uint64_t row) const override { return held_.needs(row); }
    StoreProgress progress() const override { return held_.progress(); }
    bool is_replaced() const override { return leases_ && leases_->is_replaced(); }

    Result<void> add(std::span<const StoredRow> rows) override {
        const std::lock_guard guard(mutex_);
        for (const StoredRow& row : rows) {
            if (auto defect = codec_.find_defect(view_of(row)); defect || row.row >= manifest().rows) {
                return invalid_input(folder_.string() + ": row " + std::to_string(row.row) +
                                     " cannot be stored: " + defect.value_or("it is outside the dataset"));
            }
            if (!needs(row.row) || (leases_ && !unsealed_.contains(manifest().shard_of(row.row)))) {
                continue;
            }
            auto shard = unsealed(manifest().shard_of(row.row));
            if (!shard) {
                return shard.error();
            }
            if (auto appended = (*shard)->append(row); !appended) {
                return appended;
            }
            held_.add(row.row);
            got_on_ = true;
        }
        return seal_complete();
    }

    Result<StoreClaim> claim(bool more) override {
        const std::lock_guard guard(mutex_);
        if (!leases_) {
            StoreClaim all;
            all.last = true;
            if (more && !std::exchange(claimed_, true)) {
                all.rows = held_.needed(0, manifest().rows);
            }
            return all;
        }
        for (;;) {
            std::optional<std::uint64_t> taken;
            auto claim = look_at_leases(more, taken);
            if (!claim || !taken) {
                return claim;
            }
            UnsealedFiles left = left_files();
            if (auto done = take_over(*taken, std::move(left[*taken])); !done) {
                return done.error();
            }
            note_progress();
            const std::uint64_t first = *taken * manifest().shard_rows;
            claim->rows = held_.needed(first, first + rows_of_shard(manifest(), *taken));
            if (!claim->rows.empty()) {
                return claim;
            }
            if (auto done = seal_complete(); !done) {  // its writer died after the last row
                return done.error();
            }
        }
    }

    Result<TeacherTargets> read(const TokenBatch& batch) override {
        std::vector<SealedShards::Row> sealed;
        std::vector<StoredRow> unsealed;
        std::vector<StoredRowView> views;
        sealed.reserve(batch.row_ids.size());
        unsealed.reserve(batch.row_ids.size());  // views point into them
        for (const std::uint64_t row : batch.row_ids) {
            const std::lock_guard guard(mutex_);
            const auto shard = unsealed_.find(manifest().shard_of(row));
            if (shard != unsealed_.end() && shard->second.has(row)) {
                auto stored = shard->second.read(row);
                if (!stored) {
                    return stored.error();
                }
                unsealed.push_back(std::move(*stored));
                views.push_back(view_of(unsealed.back()));
                continue;
            }
            auto stored = sealed_.row(row);
            if (!stored) {
                return stored.error();
            }
            sealed.push_back(std::move(*stored));
            views.push_back(sealed.back().view);
        }
        if (views.size() != batch.rows) {
            return invalid_input(folder_.string() + ": the batch does not say which rows of the dataset it has");
        }
        return codec_.decode(batch, views, buffers_);
    }

    Result<void> sync() override {
        const std::lock_guard guard(mutex_);
        for (const std::uint64_t number : open_shards()) {
            if (auto synced = unsealed_.at(number).sync(); !synced) {
                if (auto failure = failure_of(number, synced.error())) {
                    return *failure;
                }
                lose(number);
            }
        }
        if (auto synced = sync_folder(folder_); !synced) {
            return synced;
        }
        return seal_complete();
    }

  private:
    void note_progress() {
        StoreProgress progress;
        progress.rows = manifest().rows;
        progress.shards = manifest().shard_count();
        for (const StoreShard& shard : sealed_.list()) {
            progress.sealed_rows += shard.rows;
            progress.sealed_tokens += shard.tokens;
            progress.sealed_bytes += shard.bytes;
            ++progress.sealed_shards;
        }
        progress.held_rows = progress.sealed_rows;
        for (const auto& [number, shard] : unsealed_) {
            progress.held_rows += shard.held_rows();
        }
        held_.set(progress);
    }

    /// Updates the sealed shards of all writers.
    Result<void> see_sealed() {
        if (const auto seen = sealed_.refresh(); !seen) {
            return seen.error();
        }
        for (const StoreShard& shard : sealed_.list()) {
            if (!seen_sealed_.insert(shard.shard).second) {
                continue;
            }
            mark(shard.shard, [](std::uint64_t) { return true; });
            if (leases_ && !unsealed_.contains(shard.shard)) {
                remove_files({own_file(shard.shard)});  // rows that were added after another writer took the shard
            }
        }
        note_progress();
        return {};
    }

    /// Files with rows of unsealed shards, by shard. Removes files of sealed shards, left by a crash after the list was
    /// written.
    [[nodiscard]] UnsealedFiles left_files() const {
        UnsealedFiles files = find_unsealed_files(folder_, manifest());
        std::erase_if(files, [this](const auto& one) {
            const bool sealed = sealed_.find(one.first).has_value();
            if (sealed) {
                remove_files(one.second);
            }
            return sealed;
        });
        return files;
    }

    /// Takes over a shard with its rows in these files.
    Result<void> take_over(std::uint64_t number, std::vector<fs::path> files) {
        unsealed_.erase(number);
        auto opened = unsealed(number);
        if (!opened) {
            return opened.error();
        }
        UnsealedShard& shard = **opened;
        std::erase(files, own_file(number));
        for (const fs::path& file : files) {
            if (auto adopted = shard.adopt(file); !adopted) {
                return adopted;
            }
        }
        if (auto synced = shard.sync(); !synced) {
            return synced;
        }
        remove_files(files);
        mark(number, [&shard](std::uint64_t row) { return shard.has(row); });
        return {};
    }

    void mark(std::uint64_t shard, const std::function<bool(std::uint64_t)>& is_held) {
        const std::uint64_t first = shard * manifest().shard_rows;
        held_.mark(first, first + rows_of_shard(manifest(), shard), is_held);
    }

    /// Drops a shard that another writer has taken.
    void lose(std::uint64_t number) {
        unsealed_.erase(number);
        const bool sealed = seen_sealed_.contains(number);
        if (sealed) {
            remove_files({own_file(number)});
        }
        mark(number, [sealed](std::uint64_t) { return sealed; });
        note_progress();
    }

    /// Updates the leases of all writers, and leases the first free shard if `more` is true.
    Result<StoreClaim> look_at_leases(bool more, std::optional<std::uint64_t>& taken) {
        StoreClaim claim;
        std::vector<std::uint64_t> lost;
        const auto look = [&](ShardLeases::Table& table) -> Result<void> {
            if (auto seen = see_sealed(); !seen) {
                return seen;
            }
            for (const auto& [number, shard] : unsealed_) {
                if (!table.is_mine(number)) {
                    lost.push_back(number);
                }
            }
            std::uint64_t left = 0;
            for (std::uint64_t number = 0; number < manifest().shard_count(); ++number) {
                if (seen_sealed_.contains(number)) {
                    continue;
                }
                ++left;
                const ShardWriter* holder = table.holder(number);
                if (holder != nullptr) {
                    ++claim.others_shards;
                    claim.other = "process " + std::to_string(holder->process) + " on " + holder->host;
                } else if (more && !taken && !table.is_mine(number)) {
                    taken = number;
                    table.take(number);
                }
            }
            claim.last = left == 0;
            return {};
        };
        auto changed = leases_->change(std::exchange(got_on_, false), look);
        for (const std::uint64_t number : lost) {
            lose(number);
        }
        if (!changed) {
            return changed.error();
        }
        return claim;
    }

    [[nodiscard]] std::vector<std::uint64_t> open_shards() const {
        std::vector<std::uint64_t> numbers;
        for (const auto& [number, shard] : unsealed_) {
            numbers.push_back(number);
        }
        return numbers;
    }

    /// The error to report for a write that failed; nullopt: another writer has taken the shard over, and our file.
    [[nodiscard]] std::optional<Error> failure_of(std::uint64_t number, const Error& error) {
        bool ours = true;
        const auto look = [&](ShardLeases::Table& table) -> Result<void> {
            ours = table.is_mine(number);
            return {};
        };
        const auto looked = leases_ ? leases_->change(false, look) : Result<void>();
        if (!looked) {
            return is_replaced() ? looked.error() : error;
        }
        return ours ? std::optional(error) : std::nullopt;
    }

    [[nodiscard]] fs::path own_file(std::uint64_t shard) const {
        return folder_ / UnsealedShard::file_name(shard, owner());
    }
    [[nodiscard]] std::string owner() const { return leases_ ? leases_->id() : std::string(); }

    Result<UnsealedShard*> unsealed(std::uint64_t number) {
        auto found = unsealed_.find(number);
        if (found == unsealed_.end()) {
            auto opened = UnsealedShard::open(folder_, codec_, number, owner());
            if (!opened) {
                return opened.error();
            }
            found = unsealed_.emplace(number, std::move(*opened)).first;
        }
        return &found->second;
    }

    Result<void> seal_complete() {
        for (const std::uint64_t number : open_shards()) {
            if (!unsealed_.at(number).complete()) {
                continue;
            }
            if (auto done = seal(number); !done) {
                return done;
            }
        }
        return {};
    }

    Result<void> seal(std::uint64_t number) {
        UnsealedShard& shard = unsealed_.at(number);
        bool ours = true;
        const auto write = [&](const UnsealedShard::Rows& rows) -> Result<void> {
            auto prepared = prepare_shard(folder_, codec_, number, rows.views);
            if (!prepared) {
                return prepared.error();
            }
            prepared->entry.kl_sum = rows.kl_sum;
            prepared->entry.kl_tokens = rows.kl_tokens;
            const auto publish = [&]() -> Result<void> {
                auto committed = prepared->file.commit();
                return committed ? append_to_shard_list(folder_, prepared->entry) : committed;
            };
            if (!leases_) {
                return guard_ ? guard_(publish) : publish();
            }
            return leases_->change(true, [&](ShardLeases::Table& table) -> Result<void> {
                ours = table.is_mine(number);
                if (!ours) {
                    return {};
                }
                if (auto cut = cut_torn_line(folder_); !cut) {
                    return cut;
                }
                table.drop(number);
                return publish();
            });
        };
        const auto written = shard.with_rows(write);
        if (const auto failure = written ? std::nullopt : failure_of(number, written.error())) {
            return *failure;
        }
        if (!written || !ours) {
            lose(number);
            return {};
        }
        shard.remove();
        unsealed_.erase(number);
        return see_sealed();
    }

    const fs::path folder_;
    const FolderLock lock_;
    const std::unique_ptr<ShardLeases> leases_;
    const StoreGuard guard_;
    const RowCodec codec_;
    mutable std::mutex mutex_;
    SealedShards sealed_;
    std::map<std::uint64_t, UnsealedShard> unsealed_;
    std::set<std::uint64_t> seen_sealed_;
    TargetBuffers buffers_;
    bool claimed_ = false;  ///< without leases: all rows are claimed
    bool got_on_ = false;   ///< progress since the last change of the leases
    HeldRows held_;
};

}  // namespace

Result<std::unique_ptr<StoreWriter>> open_store_writer(const fs::path& folder, const StoreManifest& wanted,
                                                       StoreWriterOptions options) {
    if (const auto reason = no_store_reason(folder)) {
        return invalid_input(*reason);
    }
    if (const Result<void> made = make_folders(folder); !made) {
        return made.error();
    }
    constexpr std::chrono::milliseconds kOfAReader{100};  // a reader holds the lock briefly to look for writers
    auto lock = FolderLock::try_lock_file(folder, options.shared ? LockShare::shared : LockShare::exclusive, "lock",
                                          kOfAReader);
    if (!lock) {
        return lock.error();
    }
    if (!*lock) {
        return io_error(folder.string() + ": another process writes this store" +
                        (options.shared ? " and does not share it" : ""));
    }
    auto leases = options.shared ? std::make_unique<ShardLeases>(folder, options.leases) : nullptr;
    Result<StoreManifest> manifest = StoreManifest();
    if (leases) {
        // The first of several writers makes the manifest.
        const auto decide = [&](ShardLeases::Table&) -> Result<void> {
            manifest = agree_on_manifest(folder, wanted, options.same_teacher);
            return manifest ? Result<void>() : Result<void>(manifest.error());
        };
        if (auto agreed = leases->change(false, decide); !agreed) {
            return agreed.error();
        }
    } else {
        manifest = agree_on_manifest(folder, wanted, options.same_teacher);
    }
    if (!manifest) {
        return manifest.error();
    }
    auto writer =
        std::make_unique<Writer>(folder, *manifest, std::move(**lock), std::move(leases), std::move(options.guard));
    if (auto resumed = writer->resume(); !resumed) {
        return resumed.error();
    }
    return std::unique_ptr<StoreWriter>(std::move(writer));
}

}  // namespace distilld
