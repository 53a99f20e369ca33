#include "base/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

namespace distilld {
namespace {

Error failure(const std::filesystem::path& path, const char* what) {
    return io_error(path.string() + ": " + what + ": " + std::generic_category().message(errno));
}

}  // namespace

MappedFile::~MappedFile() {
    if (!bytes_.empty()) {
        // munmap takes a pointer to bytes that it does not write.
        ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
    }
}

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
        return failure(path, "cannot open");
    }
    struct stat status{};
    if (::fstat(descriptor, &status) != 0) {
        const Error error = failure(path, "cannot stat");
        ::close(descriptor);
        return error;
    }
    if (!S_ISREG(status.st_mode)) {
        ::close(descriptor);
        return io_error(path.string() + ": not a regular file");
    }
    const auto size = static_cast<std::size_t>(status.st_size);
    if (size == 0) {
        ::close(descriptor);
        return MappedFile({});
    }
    void* memory = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
    const Error error = memory == MAP_FAILED ? failure(path, "cannot map") : Error{};
    ::close(descriptor);
    if (memory == MAP_FAILED) {
        return error;
    }
    return MappedFile(std::span(static_cast<const std::byte*>(memory), size));
}

}  // namespace distilld
