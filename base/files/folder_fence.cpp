#include "base/files/folder_fence.hpp"

#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <thread>
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

constexpr const char* kFence = ".distilld-fence.json";
constexpr const char* kFenceLock = ".distilld-fence.lock";
constexpr const char* kWayOut = "; remove the file if no run uses the folder";
constexpr std::uint64_t kMaxFenceBytes = 64U << 10;
constexpr std::chrono::milliseconds kMaxLockPause{50};

/// False: another has the lock. A file system that cannot lock gives it to everyone.
bool lock_now(const Descriptor& file) {
    return ::flock(file.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

/// Excludes other changes of the folder; nullopt: another process changes it.
Result<std::optional<Descriptor>> lock_changes(const fs::path& folder, std::chrono::nanoseconds timeout) {
    Result<Descriptor> file = open_file(folder / kFenceLock, O_RDWR | O_CREAT | O_NOFOLLOW);
    if (!file) {
        return file.error();
    }
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    for (auto pause = std::chrono::milliseconds(1); !lock_now(*file); pause = std::min(2 * pause, kMaxLockPause)) {
        if (std::chrono::steady_clock::now() >= deadline) {
            return std::optional<Descriptor>();
        }
        std::this_thread::sleep_for(pause);
    }
    return std::optional(std::move(*file));
}

Error unusable(const fs::path& file, const std::string& what) {
    return invalid_input(file.string() + ": " + what + kWayOut);
}

/// nullopt: nobody has taken the folder.
Result<std::optional<FenceRecord>> read_fence(const fs::path& folder) {
    const fs::path file = folder / kFence;
    std::error_code failed;
    const fs::file_status status = fs::symlink_status(file, failed);
    if (status.type() == fs::file_type::not_found) {
        return std::optional<FenceRecord>();
    }
    if (status.type() == fs::file_type::symlink) {
        return unusable(file, "is a link, and a regular file was expected");
    }
    const Result<std::string> text = read_text_file(file, kMaxFenceBytes);
    if (!text) {
        const bool is_strange = text.error().kind == ErrorKind::invalid_input;
        return is_strange ? invalid_input(text.error().message + kWayOut) : text.error();
    }
    const auto document = parse_json_text(*text, 4);
    if (!document || !document->is_object()) {
        return unusable(file, "is not a JSON object");
    }
    FenceRecord record;
    if (const auto read = read_fields(document->get_object(), record, JsonPlace{file.string(), ""}); !read) {
        return invalid_input(read.error().message + kWayOut);
    }
    if (record.holder.empty() || record.version != FenceRecord().version) {
        return unusable(file, "is not a fence of this version of distilld");
    }
    return std::optional(std::move(record));
}

bool stands_still(const FenceRecord& owner) {
    return !owner.machine.empty() && owner.machine == boot_id() && is_stopped(owner.process);
}

JobAttempt attempt_of(const FenceRecord& record) {
    return {record.job, record.attempt};
}

}  // namespace

FolderFence::FolderFence(fs::path folder, FenceRecord mine) : folder_(std::move(folder)), mine_(std::move(mine)) {}

Result<std::optional<FolderFence>> FolderFence::try_take(const fs::path& folder, const JobAttempt& attempt,
                                                         EarlierAttempt earlier) {
    const Result<std::optional<Descriptor>> lock = lock_changes(folder, {});
    if (!lock) {
        return lock.error();
    }
    if (!*lock) {
        return std::optional<FolderFence>();
    }
    const Result<std::optional<FenceRecord>> before = read_fence(folder);
    if (!before) {
        return before.error();
    }
    FolderFence fence(folder, {FenceRecord().version, attempt.job, attempt.number, random_hex(2), boot_id(),
                               static_cast<std::uint64_t>(::getpid())});
    if (*before) {
        const JobAttempt owner = attempt_of(**before);
        if (attempt.same_job(owner) && owner.number > attempt.number) {
            Error error = replaced_error((folder / kFence).string(), attempt, owner);
            error.message += "; remove the file if no attempt " + std::to_string(owner.number) + " is running";
            return error;
        }
        const Result<Descriptor> held = open_file(folder / kFence, O_RDWR | O_NOFOLLOW);
        if (!held) {
            return held.error();
        }
        const bool lives = !lock_now(*held);
        const bool is_later = attempt.same_job(owner) && owner.number < attempt.number;
        if (lives && !(is_later && (earlier == EarlierAttempt::replaced || stands_still(**before)))) {
            return std::optional<FolderFence>();
        }
        fence.has_replaced_ = lives;
    }
    if (Result<void> written = fence.write(); !written) {
        return written.error();
    }
    return std::optional(std::move(fence));
}

FolderFence FolderFence::held_by(fs::path folder, const JobAttempt& attempt, std::string holder) {
    FolderFence fence(std::move(folder), {.job = attempt.job, .attempt = attempt.number, .holder = std::move(holder)});
    fence.held_elsewhere_ = true;
    return fence;
}

Result<void> FolderFence::commit(const std::function<Result<void>()>& change, std::chrono::nanoseconds timeout) {
    if (Result<void> made = make_folders(folder_); !made) {
        return made;
    }
    const Result<std::optional<Descriptor>> lock = lock_changes(folder_, timeout);
    if (!lock) {
        return lock.error();
    }
    if (!*lock) {
        return io_error((folder_ / kFenceLock).string() + ": another process holds its lock for too long");
    }
    const Result<bool> written_by_us = is_written();
    if (!written_by_us) {
        return written_by_us.error();
    }
    if (!*written_by_us && held_elsewhere_) {
        return io_error((folder_ / kFence).string() + ": is missing; rank 0 of this run writes it");
    }
    if (!*written_by_us) {  // somebody has removed the folder, or what is in it
        if (Result<void> written = write(); !written) {
            return written;
        }
    }
    return change();
}

Result<void> FolderFence::check() const {
    const Result<bool> ours = is_written();
    return ours ? Result<void>() : ours.error();
}

/// Whether there is a fence, which is ours then. Error: it is another owner's, or unreadable.
Result<bool> FolderFence::is_written() const {
    const Result<std::optional<FenceRecord>> now = read_fence(folder_);
    if (!now) {
        return now.error();
    }
    if (*now && (*now)->holder != mine_.holder) {
        *lost_ = true;
        return replaced_error(folder_.string(), attempt_of(mine_), attempt_of(**now));
    }
    return now->has_value();
}

/// Makes the folder ours. The lock of the changes is held.
Result<void> FolderFence::write() {
    const fs::path file = folder_ / kFence;
    if (Result<void> written = write_file_atomically(file, to_text(write_fields(mine_)) + "\n"); !written) {
        return written;
    }
    Result<Descriptor> held = open_file(file, O_RDWR | O_NOFOLLOW);
    if (!held) {
        return held.error();
    }
    static_cast<void>(lock_now(*held));  // a new file, which nobody else has opened
    held_ = std::move(*held);
    return {};
}

}  // namespace distilld
