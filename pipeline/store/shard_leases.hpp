#pragma once

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
#include "base/folder_lock.hpp"

namespace distilld {

struct ShardLeaseOptions {
    /// Another writer whose beat has not changed for so long has lost its leases.
    std::chrono::nanoseconds expiry = std::chrono::seconds(150);
    /// For which the table may be somebody else's before change() fails.
    std::chrono::nanoseconds lock_patience = std::chrono::seconds(60);
    std::function<std::chrono::steady_clock::time_point()> now = [] { return std::chrono::steady_clock::now(); };
};

/// One of the processes that write a store together, as leases.json has it.
struct ShardWriter {
    std::string id;       ///< drawn when it joined
    std::string host;     ///< for people
    std::string machine;  ///< one boot of one kernel: there a file lock shows at once who has died
    std::uint64_t process = 0;
    std::uint64_t beat = 0;             ///< counts up whenever it has got on with its work
    std::vector<std::uint64_t> shards;  ///< that it has leases of
};

BOOST_DESCRIBE_STRUCT(ShardWriter, (), (id, host, machine, process, beat, shards))

/// Who of several processes, on one machine or on nodes with a common file system, writes which shards of a store. Each
/// change of DIR/leases.json is made by one of them at a time, under a lock of DIR/leases.lock, and the file is
/// replaced as a whole.
///
/// No clock is compared with another's: a writer has lost its leases when somebody has watched its beat stand still for
/// `expiry` by his own steady clock; on the machine of a writer that has died it is seen at once, because the lock of
/// its file DIR/writer-ID.lock is free. A writer that was only slow finds its leases gone at its next change(), and
/// what it may do with a shard it does inside one. The file system must keep file locks between the nodes (flock(2);
/// NFS does). One thread at a time.
class ShardLeases {
  public:
    /// Nothing is written yet.
    ShardLeases(std::filesystem::path folder, ShardLeaseOptions options);
    ShardLeases(const ShardLeases&) = delete;
    ShardLeases& operator=(const ShardLeases&) = delete;
    /// Leaves: its leases are free.
    ~ShardLeases();

    struct Table {
        ShardWriter mine;
        std::vector<ShardWriter> others;  ///< those that live

        [[nodiscard]] bool is_mine(std::uint64_t shard) const;
        [[nodiscard]] const ShardWriter* holder(std::uint64_t shard) const;  ///< null: nobody, or we
        void take(std::uint64_t shard);                                      ///< that nobody has
        void drop(std::uint64_t shard);                                      ///< ours
    };

    /// Calls `use` with the table while nobody else can change it, and keeps what it has made of Table::mine, unless it
    /// fails. `beats`: we have got on with our work since the last change.
    Result<void> change(bool beats, const std::function<Result<void>(Table&)>& use);

    /// Of this writer: 16 hexadecimal digits.
    [[nodiscard]] const std::string& id() const noexcept { return mine_.id; }

    /// Whether a file of the store's folder with this name is about leases.
    [[nodiscard]] static bool is_file(const std::string& name);
    /// Takes away what writers have left that live no longer. Nobody may be writing the store.
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
    ShardWriter mine_;               ///< without its leases: they are what the table says
    std::optional<FolderLock> own_;  ///< of writer-ID.lock
    std::map<std::string, Seen> seen_;
};

}  // namespace distilld
