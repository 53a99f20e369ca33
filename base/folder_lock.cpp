#include "base/folder_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

namespace distilld {
namespace {

Error failure(const std::string& what, int number) {
    return io_error("cannot " + what + ": " + std::error_code(number, std::system_category()).message());
}

/// 0, or why there is no lock (EWOULDBLOCK: another has it).
int flock_error(int descriptor, LockShare share = LockShare::exclusive) {
    const int kind = share == LockShare::shared ? LOCK_SH : LOCK_EX;
    return ::flock(descriptor, kind | LOCK_NB) == 0 ? 0 : errno;
}

}  // namespace

FolderLock::~FolderLock() {
    if (descriptor_ >= 0) {
        ::close(descriptor_);
    }
}

Result<std::optional<FolderLock>> FolderLock::try_lock(const std::filesystem::path& folder) {
    FolderLock lock(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (lock.descriptor_ < 0) {
        return failure("open folder " + folder.string(), errno);
    }
    if (flock_error(lock.descriptor_) == EWOULDBLOCK) {
        return std::optional<FolderLock>();
    }
    return std::optional<FolderLock>(std::move(lock));
}

Result<std::optional<FolderLock>> FolderLock::try_lock_file(const std::filesystem::path& folder, LockShare share,
                                                            const std::string& name) {
    const std::string file = (folder / name).string();
    FolderLock lock(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (lock.descriptor_ < 0) {
        return failure("open " + file, errno);
    }
    const int error = flock_error(lock.descriptor_, share);
    if (error == EWOULDBLOCK) {
        return std::optional<FolderLock>();
    }
    if (error != 0) {
        return failure("lock " + file, error);
    }
    return std::optional<FolderLock>(std::move(lock));
}

}  // namespace distilld
