#include "server/sinks/file_sink.hpp"

#include <unistd.h>

#include <sys/file.h>
#include <sys/stat.h>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/files/files.hpp"
#include "base/files/open_file.hpp"

namespace distilld::sinks {

namespace {

Error failure(const char* what, const std::filesystem::path& path, int number) {
    return write_error(std::string(what) + " " + path.string() + ": " + std::strerror(number), number);
}

}  // namespace

Result<AppendFile> AppendFile::open(const std::filesystem::path& path, bool replaces) {
    if (path.has_parent_path()) {
        if (Result<void> made = make_folders(path.parent_path()); !made) {
            return made.error();
        }
    }
    Result<Descriptor> opened = open_file(path, O_RDWR | O_CREAT, 0644);
    if (!opened) {
        return opened.error();
    }
    struct stat found{};
    if (::fstat(opened->get(), &found) != 0) {
        return failure("cannot read", path, errno);
    }
    if (::flock(opened->get(), LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK && replaces) {
            const Result<void> copied = copy_file_atomically(path, path);
            return copied ? open(path) : copied.error();
        }
        return errno == EWOULDBLOCK ? invalid_input("another run writes to " + path.string())
                                    : failure("cannot lock", path, errno);
    }
    return AppendFile(path, std::move(*opened), static_cast<std::uint64_t>(found.st_size));
}

AppendFile::AppendFile(std::filesystem::path path, Descriptor file, std::uint64_t size)
    : path_(std::move(path)), file_(std::move(file)), size_(size) {}

Result<void> AppendFile::append(std::string_view bytes) {
    if (torn_) {
        if (Result<void> mended = cut(size_); !mended) {
            return mended;
        }
    }
    std::uint64_t at = size_;
    while (!bytes.empty()) {
        const ssize_t done = ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(at));
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
    if (::ftruncate(file_.get(), static_cast<off_t>(size)) != 0) {
        return failure("cannot cut", path_, errno);
    }
    size_ = size;
    torn_ = false;
    return {};
}

}  // namespace distilld::sinks
