#include "base/folder_lock.hpp"

#include <sys/file.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "base/open_file.hpp"

namespace distilld {
namespace {

/// 0, or why there is no lock (EWOULDBLOCK: another has it).
int flock_error(int descriptor, LockShare share = LockShare::exclusive) {
    const int kind = share == LockShare::shared ? LOCK_SH : LOCK_EX;
    return ::flock(descriptor, kind | LOCK_NB) == 0 ? 0 : errno;
}

}  // namespace

Result<std::optional<FolderLock>> FolderLock::try_lock(const std::filesystem::path& folder) {
    Result<Descriptor> opened = open_folder(folder);
    if (!opened) {
        return opened.error();
    }
    if (flock_error(opened->get()) == EWOULDBLOCK) {
        return std::optional<FolderLock>();
    }
    return std::optional<FolderLock>(FolderLock(std::move(*opened)));
}

Result<std::optional<FolderLock>> FolderLock::try_lock_file(const std::filesystem::path& folder, LockShare share,
                                                            const std::string& name) {
    Result<Descriptor> opened = open_file(folder / name, O_RDWR | O_CREAT, 0644);
    if (!opened) {
        return opened.error();
    }
    const int error = flock_error(opened->get(), share);
    if (error == EWOULDBLOCK) {
        return std::optional<FolderLock>();
    }
    if (error != 0) {
        return io_error((folder / name).string() + ": cannot lock: " + std::generic_category().message(error));
    }
    return std::optional<FolderLock>(FolderLock(std::move(*opened)));
}

}  // namespace distilld
