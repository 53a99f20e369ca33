#include "server/sinks/append_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace distilld::sinks {

namespace {

Error failure(const char* what, const std::filesystem::path& path, int number) {
    return write_error(std::string(what) + " " + path.string() + ": " + std::strerror(number), number);
}

}  // namespace

Result<AppendFile> AppendFile::open(const std::filesystem::path& path) {
    std::error_code failed;
    if (path.has_parent_path()) {
        std::filesystem::create_directories(path.parent_path(), failed);
    }
    if (failed) {
        return write_error("cannot create folder " + path.parent_path().string() + ": " + failed.message(),
                           failed.value());
    }
    // Without O_NONBLOCK, a pipe would be waited for.
    const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0644);
    if (descriptor < 0) {
        return failure("cannot write", path, errno);
    }
    AppendFile file(path, descriptor, 0);
    struct stat found{};
    if (::fstat(descriptor, &found) != 0) {
        return failure("cannot read", path, errno);
    }
    if (!S_ISREG(found.st_mode)) {
        return invalid_input(path.string() + " is no regular file");
    }
    if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
        return errno == EWOULDBLOCK ? invalid_input("another run writes to " + path.string())
                                    : failure("cannot lock", path, errno);
    }
    file.size_ = static_cast<std::uint64_t>(found.st_size);
    return file;
}

AppendFile::AppendFile(std::filesystem::path path, int descriptor, std::uint64_t size)
    : path_(std::move(path)), descriptor_(descriptor), size_(size) {}

AppendFile::AppendFile(AppendFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_),
      torn_(other.torn_) {}

AppendFile& AppendFile::operator=(AppendFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(descriptor_, other.descriptor_);
    std::swap(size_, other.size_);
    std::swap(torn_, other.torn_);
    return *this;
}

AppendFile::~AppendFile() {
    if (descriptor_ >= 0) {
        ::close(descriptor_);
    }
}

Result<void> AppendFile::append(std::string_view bytes) {
    if (torn_) {
        if (Result<void> mended = cut(size_); !mended) {
            return mended;
        }
    }
    std::uint64_t at = size_;
    while (!bytes.empty()) {
        const ssize_t done = ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(at));
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done < 0) {
            const int number = errno;
            torn_ = at > size_ && !cut(size_);
            return failure("cannot write", path_, number);
        }
        at += static_cast<std::uint64_t>(done);
        bytes.remove_prefix(static_cast<std::size_t>(done));
    }
    size_ = at;
    return {};
}

Result<void> AppendFile::cut(std::uint64_t size) {
    if (::ftruncate(descriptor_, static_cast<off_t>(size)) != 0) {
        return failure("cannot cut", path_, errno);
    }
    size_ = size;
    torn_ = false;
    return {};
}

}  // namespace distilld::sinks
