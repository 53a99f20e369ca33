#include "base/files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

namespace distilld {
namespace {

std::string reason(int code) {
    return std::generic_category().message(code);
}

Error file_error(const std::filesystem::path& path, std::string_view what, int code) {
    return write_error(path.string() + ": " + std::string(what) + ": " + reason(code), code);
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
    const auto parent = path.parent_path();
    return parent.empty() ? std::filesystem::path(".") : parent;
}

/// A descriptor that closes itself.
struct Descriptor {
    int value = -1;
    explicit Descriptor(int descriptor) : value(descriptor) {}
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    ~Descriptor() {
        if (value >= 0) {
            ::close(value);
        }
    }
};

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path, std::filesystem::path temporary, int descriptor)
    : path_(std::move(path)), temporary_(std::move(temporary)), descriptor_(descriptor) {}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
    if (this != &other) {
        discard();
        path_ = std::move(other.path_);
        temporary_ = std::move(other.temporary_);
        descriptor_ = std::exchange(other.descriptor_, -1);
    }
    return *this;
}

AtomicFile::~AtomicFile() {
    discard();
}

void AtomicFile::discard() noexcept {
    if (descriptor_ >= 0) {
        ::close(descriptor_);
        ::unlink(temporary_.c_str());
        descriptor_ = -1;
    }
}

Result<AtomicFile> AtomicFile::create(const std::filesystem::path& path) {
    // Unique within the process by the counter, among processes by the id; a leftover of a dead process is stepped
    // over.
    static std::atomic<std::uint64_t> counter{0};
    for (int attempt = 0; attempt < 100; ++attempt) {
        auto temporary = folder_of(path) / ("." + path.filename().string() + "." + std::to_string(::getpid()) + "." +
                                            std::to_string(counter.fetch_add(1)) + ".tmp");
        const int descriptor = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (descriptor >= 0) {
            return AtomicFile(path, std::move(temporary), descriptor);
        }
        if (errno != EEXIST) {
            return file_error(path, "cannot create", errno);
        }
    }
    return file_error(path, "cannot create a temporary file beside it", EEXIST);
}

Result<void> AtomicFile::write(std::span<const std::byte> bytes) {
    constexpr std::size_t kMaxWrite = std::size_t{1} << 30;  // Linux transfers less than 2 GiB a call
    while (!bytes.empty()) {
        const auto written = ::write(descriptor_, bytes.data(), std::min(bytes.size(), kMaxWrite));
        if (written < 0) {
            if (errno == EINTR) {
                continue;
            }
            return file_error(path_, "cannot write", errno);
        }
        bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
    return {};
}

Result<void> AtomicFile::write(std::string_view text) {
    return write(std::as_bytes(std::span(text.data(), text.size())));
}

Result<void> AtomicFile::sync() {
    return ::fsync(descriptor_) == 0 ? Result<void>() : file_error(path_, "cannot make durable", errno);
}

Result<void> AtomicFile::commit() {
    if (auto synced = sync(); !synced) {
        return synced;
    }
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
        return file_error(path_, "cannot rename into place", errno);
    }
    // The name is taken: nothing is left to discard, whatever close says after a successful fsync.
    ::close(std::exchange(descriptor_, -1));
    return sync_folder(folder_of(path_));
}

Result<void> write_file_atomically(const std::filesystem::path& path, std::string_view content) {
    auto file = AtomicFile::create(path);
    if (!file) {
        return file.error();
    }
    if (auto written = file->write(content); !written) {
        return written.error();
    }
    return file->commit();
}

Result<void> copy_file_atomically(const std::filesystem::path& from, const std::filesystem::path& to) {
    const Descriptor source(::open(from.c_str(), O_RDONLY | O_CLOEXEC));
    if (source.value < 0) {
        return file_error(from, "cannot open", errno);
    }
    auto file = AtomicFile::create(to);
    if (!file) {
        return file.error();
    }
    std::vector<std::byte> buffer(std::size_t{1} << 20);
    while (true) {
        const auto count = ::read(source.value, buffer.data(), buffer.size());
        if (count == 0) {
            return file->commit();
        }
        if (count < 0) {
            if (errno == EINTR) {
                continue;
            }
            return file_error(from, "cannot read", errno);
        }
        if (auto written = file->write(std::span(buffer).first(static_cast<std::size_t>(count))); !written) {
            return written.error();
        }
    }
}

Result<void> sync_folder(const std::filesystem::path& folder) {
    const Descriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (descriptor.value < 0) {
        return file_error(folder, "cannot open", errno);
    }
    // Some file systems cannot sync a folder and say EINVAL; their renames are as durable as they get.
    if (::fsync(descriptor.value) != 0 && errno != EINVAL) {
        return file_error(folder, "cannot make durable", errno);
    }
    return {};
}

Result<std::string> read_text_file(const std::filesystem::path& path, std::uint64_t limit) {
    const Descriptor source(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (source.value < 0) {
        return file_error(path, "cannot open", errno);
    }
    struct stat status{};
    if (::fstat(source.value, &status) != 0) {
        return file_error(path, "cannot stat", errno);
    }
    if (!S_ISREG(status.st_mode)) {
        return io_error(path.string() + ": not a regular file");
    }
    if (static_cast<std::uint64_t>(status.st_size) > limit) {
        return invalid_input(path.string() + ": " + std::to_string(status.st_size) + " bytes, more than the " +
                             std::to_string(limit) + " allowed");
    }
    std::string text(static_cast<std::size_t>(status.st_size), '\0');
    std::size_t filled = 0;
    while (filled < text.size()) {
        const auto count = ::read(source.value, text.data() + filled, text.size() - filled);
        if (count < 0) {
            if (errno == EINTR) {
                continue;
            }
            return file_error(path, "cannot read", errno);
        }
        if (count == 0) {
            break;
        }
        filled += static_cast<std::size_t>(count);
    }
    text.resize(filled);
    return text;
}

std::uint64_t folder_bytes(const std::filesystem::path& folder) {
    std::error_code error;
    std::uint64_t bytes = 0;
    for (std::filesystem::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
        if (entry->is_regular_file(error)) {
            const std::uintmax_t size = entry->file_size(error);
            bytes += error ? 0 : size;
        }
    }
    return error ? 0 : bytes;
}

}  // namespace distilld
