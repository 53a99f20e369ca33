#include "base/files/mapped_file.hpp"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "base/files/open_file.hpp"

namespace distilld {
namespace {

Error failure(const std::filesystem::path& path, const char* what) {
    return io_error(path.string() + ": " + what + ": " + std::generic_category().message(errno));
}

}  // namespace

MappedFile::~MappedFile() {
    if (!bytes_.empty()) {
        // munmap() takes a mutable pointer but does not write.
        ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
    }
}

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
    const Result<Descriptor> file = open_file(path, O_RDONLY);
    if (!file) {
        return file.error();
    }
    struct stat status{};
    if (::fstat(file->get(), &status) != 0) {
        return failure(path, "cannot stat");
    }
    const auto size = static_cast<std::size_t>(status.st_size);
    if (size == 0) {
        return MappedFile({});
    }
    void* memory = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file->get(), 0);
    if (memory == MAP_FAILED) {
        return failure(path, "cannot map");
    }
    return MappedFile(std::span(static_cast<const std::byte*>(memory), size));
}

}  // namespace distilld
