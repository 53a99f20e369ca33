#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/describes.hpp"
#include "base/error.hpp"
#include "base/files/folder_lock.hpp"
#include "base/job_attempt.hpp"

namespace distilld {

struct ShardLeaseOptions {
    /// Another writer loses its leases if its heartbeat has not changed for this long.
    std::chrono::nanoseconds expiry = std::chrono::seconds(150);
    /// Timeout for the lock of the table, after which change() fails.
    std::chrono::nanoseconds lock_timeout = std::chrono::seconds(60);
    std::function<std::chrono::steady_clock::time_point()> now = [] { return std::chrono::steady_clock::now(); };
    JobAttempt attempt{};  ///< of this writer
};

/// One of the processes that write a store together, as in leases.json.
struct ShardWriter {
    std::string id;       ///< random, drawn when it joined
    std::string host;     ///< for users
    std::string machine;  ///< one boot of one kernel: there, file locks show at once that a writer has died
    std::uint64_t process = 0;
    std::uint64_t beat = 0;             ///< heartbeat: incremented with each progress
    std::vector<std::uint64_t> shards;  ///< shards that it has leased
    std::string job{};                  ///< JobAttempt
    std::uint64_t attempt = 0;
};

BOOST_DESCRIBE_STRUCT(ShardWriter, (), (id, host, machine, process, beat, shards, job, attempt))

/// Decides which of several processes, on one machine or on nodes with a shared file system, writes which shards of a
/// store. DIR/leases.json is changed under a lock of DIR/leases.lock, and replaced as a whole.
///
/// Clocks are not compared: a writer loses its leases after another one has seen its heartbeat unchanged for `expiry`
/// on its own steady clock. On the same machine, a dead writer is detected at once, because the lock of its file
/// DIR/writer-ID.lock is free. A slow writer finds its leases gone at its next change(); it changes shards only inside
/// change(). A writer whose job has a later attempt in the table loses its leases at once, and each change() of it
/// fails. The file system must support file locks across nodes (flock(2); NFS does). One thread at a time.
class ShardLeases {
  public:
    /// Writes nothing yet.
    ShardLeases(std::filesystem::path folder, ShardLeaseOptions options);
    ShardLeases(const ShardLeases&) = delete;
    ShardLeases& operator=(const ShardLeases&) = delete;
    /// Frees its leases.
    ~ShardLeases();

    struct Table {
        ShardWriter mine;
        std::vector<ShardWriter> others;  ///< live writers

        [[nodiscard]] bool is_mine(std::uint64_t shard) const;
        [[nodiscard]] const ShardWriter* holder(std::uint64_t shard) const;  ///< null: free, or ours
        void take(std::uint64_t shard);                                      ///< a free shard
        void drop(std::uint64_t shard);                                      ///< ours
    };

    /// Calls `use` with the locked table and stores Table::mine afterwards, unless it fails. `beats`: there was
    /// progress since the last change. An error, without a call: a later attempt of the job has been here.
    Result<void> change(bool beats, const std::function<Result<void>(Table&)>& use);

    /// A change() has failed because of a later attempt. Any thread.
    [[nodiscard]] bool is_replaced() const noexcept { return replaced_; }
    /// Id of this writer: 16 hexadecimal digits.
    [[nodiscard]] const std::string& id() const noexcept { return mine_.id; }

    /// Whether a file of this name in the store's folder belongs to the leases.
    [[nodiscard]] static bool is_file(const std::string& name);
    /// Removes leftovers of dead writers. No process may be writing the store.
    static void clear(const std::filesystem::path& folder);

  private:
    struct Seen {
        std::uint64_t beat = 0;
        std::chrono::steady_clock::time_point since;
    };

    Result<FolderLock> lock() const;
    Result<void> enter();
    [[nodiscard]] bool is_dead(const ShardWriter& writer);
    [[nodiscard]] std::filesystem::path file_of(const std::string& id) const;

    std::filesystem::path folder_;
    ShardLeaseOptions options_;
    ShardWriter mine_;               ///< without its leases, which are in the table
    std::optional<FolderLock> own_;  ///< on writer-ID.lock
    std::map<std::string, Seen> seen_;
    std::atomic<bool> replaced_ = false;
};

}  // namespace distilld
