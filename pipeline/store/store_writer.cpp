#include "pipeline/store/store_writer.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>

#include "base/files.hpp"
#include "base/folder_lock.hpp"
#include "pipeline/store/sealed_shards.hpp"
#include "pipeline/store/unsealed_shard.hpp"

namespace distilld {
namespace {

namespace fs = std::filesystem;

class Writer final : public StoreWriter {
  public:
    Writer(fs::path folder, const StoreManifest& manifest, FolderLock lock)
        : folder_(std::move(folder)),
          lock_(std::move(lock)),
          codec_(make_row_codec(manifest)),
          sealed_(folder_, *codec_),
          held_(manifest.rows) {}

    /// Finds what an earlier writer has left.
    Result<void> resume() {
        if (auto cut = cut_torn_line(); !cut) {
            return cut;
        }
        if (const auto found = sealed_.refresh(); !found) {
            return found.error();
        }
        for (const StoreShard& shard : sealed_.list()) {
            for (std::uint64_t i = 0; i < shard.rows; ++i) {
                held_[shard.first_row + i] = true;
            }
        }
        for (std::uint64_t shard = 0; shard < manifest().shard_count(); ++shard) {
            const fs::path part = folder_ / UnsealedShard::file_name(shard);
            std::error_code error;
            if (!fs::exists(part, error)) {
                continue;
            }
            if (sealed_.find(shard)) {
                fs::remove(part, error);  // the end came between the list and this
                continue;
            }
            auto opened = UnsealedShard::open(folder_, *codec_, shard);
            if (!opened) {
                return opened.error();
            }
            for (std::uint64_t i = 0; i < rows_of_shard(manifest(), shard); ++i) {
                const std::uint64_t row = shard * manifest().shard_rows + i;
                held_[row] = opened->has(row);
            }
            unsealed_.emplace(shard, std::move(*opened));
        }
        note_progress();
        return seal_complete();
    }

    const StoreManifest& manifest() const override { return codec_->manifest(); }
    const RowCodec& codec() const override { return *codec_; }

    bool needs(std::uint64_t row) const override {
        const std::lock_guard guard(seen_mutex_);
        return row < held_.size() && !held_[row];
    }

    StoreProgress progress() const override {
        const std::lock_guard guard(seen_mutex_);
        return progress_;
    }

    Result<void> add(std::span<const StoredRow> rows) override {
        const std::lock_guard guard(mutex_);
        for (const StoredRow& row : rows) {
            if (auto defect = codec_->find_defect(view_of(row)); defect || row.row >= manifest().rows) {
                return invalid_input(folder_.string() + ": row " + std::to_string(row.row) +
                                     " cannot be stored: " + defect.value_or("it is outside the dataset"));
            }
            if (!needs(row.row)) {
                continue;
            }
            auto shard = unsealed(manifest().shard_of(row.row));
            if (!shard) {
                return shard.error();
            }
            if (auto appended = (*shard)->append(row); !appended) {
                return appended;
            }
            note_held(row.row);
        }
        return seal_complete();
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
        return codec_->decode(batch, views, buffers_);
    }

    Result<void> sync() override {
        const std::lock_guard guard(mutex_);
        for (const auto& [number, shard] : unsealed_) {
            if (auto synced = shard.sync(); !synced) {
                return synced;
            }
        }
        if (auto synced = sync_folder(folder_); !synced) {
            return synced;
        }
        return seal_complete();
    }

  private:
    /// What needs() and progress() tell, which do not wait for a shard to be written.
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
        const std::lock_guard guard(seen_mutex_);
        progress_ = progress;
    }

    void note_held(std::uint64_t row) {
        const std::lock_guard guard(seen_mutex_);
        held_[row] = true;
        ++progress_.held_rows;
    }

    /// A line that an earlier writer did not finish.
    Result<void> cut_torn_line() const {
        std::uint64_t end = 0;
        if (const auto lines = read_shard_list(folder_, manifest(), end); !lines) {
            return lines.error();
        }
        const fs::path list = shard_list_file(folder_);
        std::error_code error;
        const std::uintmax_t size = fs::file_size(list, error);
        if (!error && size > end && ::truncate(list.c_str(), static_cast<off_t>(end)) != 0) {
            return io_error(list.string() + ": cannot cut off a torn line: " + std::generic_category().message(errno));
        }
        return {};
    }

    Result<UnsealedShard*> unsealed(std::uint64_t number) {
        auto found = unsealed_.find(number);
        if (found == unsealed_.end()) {
            auto opened = UnsealedShard::open(folder_, *codec_, number);
            if (!opened) {
                return opened.error();
            }
            found = unsealed_.emplace(number, std::move(*opened)).first;
        }
        return &found->second;
    }

    Result<void> seal_complete() {
        std::vector<std::uint64_t> complete;
        for (const auto& [number, shard] : unsealed_) {
            if (shard.complete()) {
                complete.push_back(number);
            }
        }
        for (const std::uint64_t number : complete) {
            if (auto done = seal(number); !done) {
                return done;
            }
        }
        return {};
    }

    Result<void> seal(std::uint64_t number) {
        UnsealedShard& shard = unsealed_.at(number);
        const auto write = [&](const UnsealedShard::Rows& rows) -> Result<void> {
            auto entry = write_shard(folder_, *codec_, number, rows.views);
            if (!entry) {
                return entry.error();
            }
            entry->kl_sum = rows.kl_sum;
            entry->kl_tokens = rows.kl_tokens;
            return append_to_shard_list(folder_, *entry);
        };
        if (auto written = shard.with_rows(write); !written) {
            return written;
        }
        if (const auto seen = sealed_.refresh(); !seen) {
            return seen.error();
        }
        shard.remove();
        unsealed_.erase(number);
        note_progress();
        return {};
    }

    const fs::path folder_;
    const FolderLock lock_;
    const std::unique_ptr<RowCodec> codec_;
    mutable std::mutex mutex_;
    SealedShards sealed_;
    std::map<std::uint64_t, UnsealedShard> unsealed_;
    TargetBuffers buffers_;

    mutable std::mutex seen_mutex_;
    std::vector<bool> held_;
    StoreProgress progress_;
};

bool equal_teachers(const std::string& stored, const std::string& wanted) {
    return stored.empty() || wanted.empty() || stored == wanted;
}

/// The manifest of the store that is there, when it is of the same data, or of the one that is made.
Result<StoreManifest> agree(const fs::path& folder, const StoreManifest& wanted, const StoreWriterOptions& options) {
    auto completed = complete_manifest(wanted);
    if (!completed) {
        return completed.error();
    }
    if (!store_exists(folder)) {
        if (auto written = write_manifest(folder, *completed); !written) {
            return written.error();
        }
        return completed;
    }
    auto stored = read_manifest(folder);
    if (!stored) {
        return stored.error();
    }
    if (const auto difference = find_difference(*stored, *completed)) {
        return invalid_input(folder.string() + ": the store there is of other data: " + *difference);
    }
    const auto& same_teacher = options.same_teacher;
    if (!(same_teacher ? same_teacher(stored->teacher, completed->teacher)
                       : equal_teachers(stored->teacher, completed->teacher))) {
        return invalid_input(folder.string() + ": the store there is of another teacher" +
                             (stored->teacher_name.empty() ? std::string() : " (" + stored->teacher_name + ")"));
    }
    return stored;
}

}  // namespace

Result<void> StoreWriter::add(const TokenBatch& batch, const TeacherTargets& targets) {
    const auto rows = codec().encode(batch, targets);
    if (!rows) {
        return rows.error();
    }
    return add(*rows);
}

Result<std::unique_ptr<StoreWriter>> open_store_writer(const fs::path& folder, const StoreManifest& wanted,
                                                       StoreWriterOptions options) {
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) {
        return io_error(folder.string() + ": cannot be made: " + error.message());
    }
    auto lock = FolderLock::try_lock_file(folder);
    if (!lock) {
        return lock.error();
    }
    if (!*lock) {
        return io_error(folder.string() + ": another process writes this store");
    }
    const auto manifest = agree(folder, wanted, options);
    if (!manifest) {
        return manifest.error();
    }
    auto writer = std::make_unique<Writer>(folder, *manifest, std::move(**lock));
    if (auto resumed = writer->resume(); !resumed) {
        return resumed.error();
    }
    return std::unique_ptr<StoreWriter>(std::move(writer));
}

}  // namespace distilld
