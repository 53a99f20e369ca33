#include "base/files/without_links.hpp"

#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace distilld {
namespace {

namespace fs = std::filesystem;

constexpr int kWay = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
constexpr mode_t kNewFolder = 0777;

Descriptor top() {
    return Descriptor(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
}

}  // namespace

Descriptor open_without_links(const fs::path& path, int flags, mode_t mode) {
    open_how how{};
    how.flags = static_cast<__u64>(flags | O_CLOEXEC);
    how.mode = (flags & O_CREAT) != 0 ? mode : 0;
    how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
    const Descriptor from = top();
    const std::string below = path.relative_path().string();
    Descriptor opened(
        static_cast<int>(::syscall(SYS_openat2, from.get(), below.empty() ? "." : below.c_str(), &how, sizeof(how))));
    // Sandboxes that do not know the call return EPERM.
    return !opened && (errno == ENOSYS || errno == EPERM) ? walk_without_links(path, flags, mode) : std::move(opened);
}

Descriptor walk_without_links(const fs::path& path, int flags, mode_t mode) {
    Descriptor at = top();
    const fs::path below = path.relative_path();
    for (const fs::path& part : below.parent_path()) {
        at = Descriptor(::openat(at.get(), part.c_str(), kWay));
        if (!at) {
            return at;
        }
    }
    const std::string name = below.empty() ? "." : below.filename().string();
    return Descriptor(::openat(at.get(), name.c_str(), flags | O_NOFOLLOW | O_CLOEXEC, mode));
}

Descriptor make_without_links(const fs::path& folder) {
    Descriptor at = top();
    for (const fs::path& part : folder.relative_path()) {
        Descriptor next(::openat(at.get(), part.c_str(), kWay));
        if (!next && errno == ENOENT && (::mkdirat(at.get(), part.c_str(), kNewFolder) == 0 || errno == EEXIST)) {
            next = Descriptor(::openat(at.get(), part.c_str(), kWay));
        }
        at = std::move(next);
        if (!at) {
            return at;
        }
    }
    return at;
}

}  // namespace distilld
