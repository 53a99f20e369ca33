#include "server/worker/folder_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace distilld {

FolderLock::~FolderLock() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

Result<std::optional<FolderLock>> FolderLock::try_lock(const std::filesystem::path& folder) {
    const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) {
        return io_error("cannot open folder " + folder.string() + ": " +
                        std::error_code(errno, std::system_category()).message());
    }
    FolderLock lock(descriptor);
    if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return std::optional<FolderLock>();
    return std::optional<FolderLock>(std::move(lock));
}

}  // namespace distilld
