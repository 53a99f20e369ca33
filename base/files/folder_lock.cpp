#include "base/files/folder_lock.hpp"

#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string>
#include <system_error>
#include <thread>

#include "base/files/open_file.hpp"

namespace distilld {
namespace {

constexpr std::chrono::milliseconds kMaxPause{50};

/// 0, or the errno of the failure (EWOULDBLOCK: another has the lock).
int flock_error(int descriptor, LockShare share = LockShare::exclusive) {
    const int kind = share == LockShare::shared ? LOCK_SH : LOCK_EX;
    return ::flock(descriptor, kind | LOCK_NB) == 0 ? 0 : errno;
}

}  // namespace

Result<std::optional<FolderLock>> FolderLock::try_lock_file(const std::filesystem::path& folder, LockShare share,
                                                            const std::string& name, std::chrono::nanoseconds timeout) {
    Result<Descriptor> opened = open_file(folder / name, O_RDWR | O_CREAT, 0644);
    if (!opened) {
        return opened.error();
    }
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    int error = flock_error(opened->get(), share);
    for (auto pause = std::chrono::milliseconds(1); error == EWOULDBLOCK; pause = std::min(2 * pause, kMaxPause)) {
        if (std::chrono::steady_clock::now() >= deadline) {
            return std::optional<FolderLock>();
        }
        std::this_thread::sleep_for(pause);
        error = flock_error(opened->get(), share);
    }
    if (error != 0) {
        return io_error((folder / name).string() + ": cannot lock: " + std::generic_category().message(error));
    }
    return std::optional<FolderLock>(FolderLock(std::move(*opened)));
}

std::optional<bool> FolderLock::is_held(const std::filesystem::path& folder, const std::string& name) {
    std::error_code ignored;
    if (!std::filesystem::exists(folder / name, ignored)) {
        return false;
    }
    // Retries, because another caller of is_held() also holds the lock for a moment.
    for (int look = 0;; ++look) {
        int error = EBADF;
        for (const int flags : {O_RDONLY, O_RDWR}) {  // locks on NFS need O_RDWR
            const Result<Descriptor> opened = open_file(folder / name, flags);
            error = opened && error == EBADF ? flock_error(opened->get()) : error;
        }
        if (error != EWOULDBLOCK) {
            return error == 0 ? std::optional(false) : std::nullopt;
        }
        if (look == 2) {
            return true;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

}  // namespace distilld
