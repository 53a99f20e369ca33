#include "pipeline/store/shard_leases.hpp"

#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/files/files.hpp"
#include "base/files/open_file.hpp"
#include "base/json_fields.hpp"
#include "base/json_text.hpp"
#include "base/random_hex.hpp"
#include "base/this_machine.hpp"

namespace distilld {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTable = "leases.json";
constexpr const char* kLock = "leases.lock";
constexpr std::string_view kWriter = "writer-";
constexpr std::string_view kLockEnding = ".lock";
constexpr std::uint64_t kMaxTableBytes = std::uint64_t{16} << 20U;

struct TableFile {
    std::uint64_t version = 1;
    std::vector<ShardWriter> writers;
    std::map<std::string, std::uint64_t> attempts{};  ///< the latest of each job, also after its end
};

BOOST_DESCRIBE_STRUCT(TableFile, (), (version, writers, attempts))

/// An unreadable table has no leases: a writer that loses one notices it.
TableFile read_table(const fs::path& file) {
    TableFile table;
    const auto text = read_text_file(file, kMaxTableBytes);
    const auto parsed = text ? parse_json_text(*text, 8) : parse_json_text("null", 8);
    if (parsed && parsed->is_object() && !read_fields(parsed->get_object(), table, JsonPlace{file.string(), ""})) {
        table = TableFile();
    }
    return table;
}

JobAttempt latest_of(const TableFile& table, const std::string& job) {
    const auto found = table.attempts.find(job);
    return {job, found == table.attempts.end() || job.empty() ? 0 : found->second};
}

}  // namespace

bool ShardLeases::Table::is_mine(std::uint64_t shard) const {
    return std::ranges::find(mine.shards, shard) != mine.shards.end();
}

const ShardWriter* ShardLeases::Table::holder(std::uint64_t shard) const {
    const auto has = [shard](const ShardWriter& one) {
        return std::ranges::find(one.shards, shard) != one.shards.end();
    };
    const auto found = std::ranges::find_if(others, has);
    return found == others.end() ? nullptr : &*found;
}

void ShardLeases::Table::take(std::uint64_t shard) {
    mine.shards.push_back(shard);
    ++mine.beat;  // a writer that saw no heartbeat while we waited must not take us for dead
}

void ShardLeases::Table::drop(std::uint64_t shard) {
    std::erase(mine.shards, shard);
}

ShardLeases::ShardLeases(fs::path folder, ShardLeaseOptions options)
    : folder_(std::move(folder)), options_(std::move(options)) {
    mine_.id = random_hex(2);
    mine_.host = host_name();
    mine_.machine = boot_id();  // if unknown, no writer is known to be on this machine
    mine_.process = static_cast<std::uint64_t>(::getpid());
    mine_.job = options_.attempt.job;
    mine_.attempt = options_.attempt.number;
}

ShardLeases::~ShardLeases() {
    if (!own_) {
        return;
    }
    const auto lock = this->lock();
    TableFile table = read_table(folder_ / kTable);
    const auto erased = std::erase_if(table.writers, [this](const ShardWriter& one) { return one.id == mine_.id; });
    if (lock && erased > 0) {
        // If the write fails, other writers detect that this one is gone.
        static_cast<void>(write_file_atomically(folder_ / kTable, to_text(write_fields(table)) + "\n"));
    }
    static_cast<void>(remove_entry(file_of(mine_.id)));
}

Result<void> ShardLeases::change(bool beats, const std::function<Result<void>(Table&)>& use) {
    const auto lock = this->lock();
    if (!lock) {
        return lock.error();
    }
    const TableFile before = read_table(folder_ / kTable);
    const JobAttempt latest = latest_of(before, mine_.job);
    if (latest.number > mine_.attempt) {
        replaced_ = true;
        return replaced_error(folder_.string(), options_.attempt, latest);
    }
    Table table;
    table.mine = mine_;
    bool known = false;
    for (const ShardWriter& one : before.writers) {
        if (one.id == mine_.id) {
            table.mine = one;
            known = true;
        } else if (is_dead(one)) {
            static_cast<void>(remove_entry(file_of(one.id)));
            seen_.erase(one.id);
        } else {
            table.others.push_back(one);
        }
    }
    if (!known) {
        if (auto entered = enter(); !entered) {
            return entered;
        }
    }
    // Continues counting if another writer took us for dead, so that no old heartbeat value repeats.
    table.mine.beat = std::max(mine_.beat, table.mine.beat) + (beats || !known ? 1 : 0);
    if (auto used = use(table); !used) {
        return used;
    }
    mine_.beat = table.mine.beat;
    TableFile after{before.version, table.others, before.attempts};
    after.writers.push_back(table.mine);
    if (!mine_.job.empty()) {
        after.attempts[mine_.job] = mine_.attempt;
    }
    std::ranges::sort(after.writers, {}, &ShardWriter::id);
    const std::string text = to_text(write_fields(after));
    return text == to_text(write_fields(before)) ? Result<void>()
                                                 : write_file_atomically(folder_ / kTable, text + "\n");
}

bool ShardLeases::is_file(const std::string& name) {
    // Includes temporary tables of killed writers.
    return name == kTable || name == kLock || name.starts_with("." + std::string(kTable) + ".") ||
           (name.starts_with(kWriter) && name.ends_with(kLockEnding));
}

void ShardLeases::clear(const fs::path& folder) {
    const auto names = names_in(folder);
    for (const std::string& name : names ? *names : std::vector<std::string>()) {
        if (is_file(name)) {
            static_cast<void>(remove_entry(folder / name));
        }
    }
}

Result<FolderLock> ShardLeases::lock() const {
    auto lock = FolderLock::try_lock_file(folder_, LockShare::exclusive, kLock, options_.lock_timeout);
    if (!lock) {
        return lock.error();
    }
    if (!*lock) {
        return io_error((folder_ / kLock).string() + ": another process holds its lock for too long");
    }
    return std::move(**lock);
}

/// Locks the file that shows that this writer lives. A writer that took us for dead has removed it.
Result<void> ShardLeases::enter() {
    own_.reset();
    auto locked = FolderLock::try_lock_file(folder_, LockShare::exclusive, file_of(mine_.id).filename().string());
    if (!locked) {
        return locked.error();
    }
    if (!*locked) {
        return io_error(file_of(mine_.id).string() + ": another process holds it");
    }
    own_ = std::move(**locked);
    return {};
}

bool ShardLeases::is_dead(const ShardWriter& writer) {
    if (!mine_.job.empty() && writer.job == mine_.job && writer.attempt < mine_.attempt) {
        return true;  // it can change nothing any more
    }
    if (!mine_.machine.empty() && writer.machine == mine_.machine) {
        std::error_code error;
        if (!fs::exists(file_of(writer.id), error)) {
            return true;
        }
        const auto lock =
            FolderLock::try_lock_file(folder_, LockShare::exclusive, file_of(writer.id).filename().string());
        if (lock && *lock) {
            return true;
        }
    }
    const auto now = options_.now();
    const auto [seen, is_new] = seen_.try_emplace(writer.id, Seen{writer.beat, now});
    if (!is_new && seen->second.beat != writer.beat) {
        seen->second = {writer.beat, now};
    }
    return now - seen->second.since >= options_.expiry;
}

fs::path ShardLeases::file_of(const std::string& id) const {
    return folder_ / (std::string(kWriter) + id + std::string(kLockEnding));
}

}  // namespace distilld
