#include "base/files/files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "base/files/read_at.hpp"

namespace distilld {
namespace {

std::string reason(int code) {
    return std::generic_category().message(code);
}

Error file_error(const std::filesystem::path& path, std::string_view what, int code) {
    return write_error(path.string() + ": " + std::string(what) + ": " + reason(code), code);
}

/// Makes renames and removals in the folder `at` durable; "." of an O_PATH descriptor can be synced.
Result<void> sync_entries(int at, const std::filesystem::path& name) {
    const Descriptor folder(::openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder) {
        return file_error(name, "cannot open", errno);
    }
    // Some file systems cannot sync a folder and return EINVAL; their renames cannot be made more durable.
    if (::fsync(folder.get()) != 0 && errno != EINVAL) {
        return file_error(name, "cannot make durable", errno);
    }
    return {};
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path, FolderEntry entry, std::string temporary, Descriptor file)
    : path_(std::move(path)), entry_(std::move(entry)), temporary_(std::move(temporary)), file_(std::move(file)) {}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept = default;

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(entry_, other.entry_);
    std::swap(temporary_, other.temporary_);
    std::swap(file_, other.file_);
    return *this;
}

AtomicFile::~AtomicFile() {
    if (file_) {
        ::unlinkat(entry_.folder.get(), temporary_.c_str(), 0);
    }
}

Result<AtomicFile> AtomicFile::create(const std::filesystem::path& path, FileAccess access) {
    // The counter makes the name unique within the process, the id among processes. Leftovers of dead processes are
    // skipped.
    static std::atomic<std::uint64_t> counter{0};
    Result<FolderEntry> entry = open_folder_of(path);
    if (!entry) {
        return entry.error();
    }
    const bool is_private = access == FileAccess::folder_owner;
    for (int attempt = 0; attempt < 100; ++attempt) {
        std::string temporary =
            "." + entry->name + "." + std::to_string(::getpid()) + "." + std::to_string(counter.fetch_add(1)) + ".tmp";
        Descriptor file(::openat(entry->folder.get(), temporary.c_str(),
                                 O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, is_private ? 0600 : 0666));
        if (file) {
            struct stat owner{};
            if (is_private && ::geteuid() == 0 && ::fstat(entry->folder.get(), &owner) == 0) {
                [[maybe_unused]] const int changed = ::fchown(file.get(), owner.st_uid, owner.st_gid);
            }
            return AtomicFile(path, std::move(*entry), std::move(temporary), std::move(file));
        }
        if (errno != EEXIST) {
            return file_error(path, "cannot create", errno);
        }
    }
    return file_error(path, "cannot create a temporary file beside it", EEXIST);
}

Result<void> AtomicFile::write(std::span<const std::byte> bytes) {
    return write_all(file_.get(), bytes, path_);
}

Result<void> write_all(int file, std::span<const std::byte> bytes, const std::filesystem::path& path) {
    constexpr std::size_t kMaxWrite = std::size_t{1} << 30;  // Linux transfers less than 2 GiB per call
    while (!bytes.empty()) {
        const auto written = ::write(file, bytes.data(), std::min(bytes.size(), kMaxWrite));
        if (written < 0) {
            if (errno == EINTR) {
                continue;
            }
            return file_error(path, "cannot write", errno);
        }
        bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
    return {};
}

Result<void> AtomicFile::write(std::string_view text) {
    return write(std::as_bytes(std::span(text.data(), text.size())));
}

Result<void> AtomicFile::sync() {
    return ::fsync(file_.get()) == 0 ? Result<void>() : file_error(path_, "cannot make durable", errno);
}

Result<void> AtomicFile::commit() {
    if (auto synced = sync(); !synced) {
        return synced;
    }
    if (::renameat(entry_.folder.get(), temporary_.c_str(), entry_.folder.get(), entry_.name.c_str()) != 0) {
        return file_error(path_, "cannot rename into place", errno);
    }
    // The rename has succeeded: nothing is left to discard, even if close() fails after a successful fsync.
    file_ = Descriptor();
    return sync_entries(entry_.folder.get(), path_.parent_path());
}

Result<void> write_file_atomically(const std::filesystem::path& path, std::string_view content, FileAccess access) {
    auto file = AtomicFile::create(path, access);
    if (!file) {
        return file.error();
    }
    if (auto written = file->write(content); !written) {
        return written.error();
    }
    return file->commit();
}

Result<void> copy_file_atomically(const std::filesystem::path& from, const std::filesystem::path& to) {
    const Result<Descriptor> source = open_file(from, O_RDONLY);
    if (!source) {
        return source.error();
    }
    auto file = AtomicFile::create(to);
    if (!file) {
        return file.error();
    }
    std::vector<std::byte> buffer(std::size_t{1} << 20);
    std::uint64_t done = 0;
    while (true) {
        const std::size_t count = read_at(source->get(), buffer, done);
        const bool ends = count < buffer.size();
        if (ends && errno != 0) {
            return file_error(from, "cannot read", errno);
        }
        if (auto written = file->write(std::span(buffer).first(count)); !written) {
            return written.error();
        }
        if (ends) {
            return file->commit();
        }
        done += count;
    }
}

Result<void> sync_folder(const std::filesystem::path& folder) {
    const Result<Descriptor> opened = open_folder(folder);
    return opened ? sync_entries(opened->get(), folder) : opened.error();
}

Result<std::string> read_text_file(const std::filesystem::path& path, std::uint64_t limit, const FileRule* rule) {
    const Result<Descriptor> source = open_file(path, O_RDONLY, 0, rule);
    if (!source) {
        return source.error();
    }
    struct stat status{};
    if (::fstat(source->get(), &status) != 0) {
        return file_error(path, "cannot stat", errno);
    }
    if (static_cast<std::uint64_t>(status.st_size) > limit) {
        return invalid_input(path.string() + ": " + std::to_string(status.st_size) + " bytes, more than the " +
                             std::to_string(limit) + " allowed");
    }
    std::string text(static_cast<std::size_t>(status.st_size), '\0');
    const std::size_t filled = read_at(source->get(), std::as_writable_bytes(std::span(text)), 0);
    if (filled < text.size() && errno != 0) {
        return file_error(path, "cannot read", errno);
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
