#include "server/cli/jobs/unpack_tar.hpp"

#include <archive.h>
#include <archive_entry.h>

#include <algorithm>
#include <memory>
#include <new>
#include <string>
#include <system_error>

namespace distilld::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBlockBytes = 256U << 10;
constexpr int kFlags = ARCHIVE_EXTRACT_TIME | ARCHIVE_EXTRACT_SECURE_SYMLINKS | ARCHIVE_EXTRACT_SECURE_NODOTDOT |
                       ARCHIVE_EXTRACT_NO_OVERWRITE;
constexpr int kFileMode = 0644;
constexpr int kFolderMode = 0755;

struct FreeReader {
    void operator()(archive* it) const { archive_read_free(it); }
};
struct FreeWriter {
    void operator()(archive* it) const { archive_write_free(it); }
};

Error failed(const char* what, archive* where) {
    const char* why = archive_error_string(where);
    return io_error(std::string(what) + ": " + (why != nullptr ? why : "no reason given"));
}

/// Why an entry is refused; empty: it is not.
std::string refusal(archive_entry* entry) {
    const char* name = archive_entry_pathname(entry);
    if (name == nullptr || *name == '\0') {
        return "the tar has an entry without a name";
    }
    const fs::path path(name);
    if (path.is_absolute() || std::ranges::any_of(path, [](const fs::path& part) { return part == ".."; })) {
        return "the tar has an entry that leads out of its folder: " + path.string();
    }
    const auto type = archive_entry_filetype(entry);
    if ((type != AE_IFREG && type != AE_IFDIR) || archive_entry_hardlink(entry) != nullptr) {
        return "the tar has an entry that is neither a file nor a folder: " + path.string();
    }
    return {};
}

Result<void> copy_data(archive* from, archive* to) {
    for (;;) {
        const void* bytes = nullptr;
        std::size_t size = 0;
        la_int64_t offset = 0;
        const int got = archive_read_data_block(from, &bytes, &size, &offset);
        if (got == ARCHIVE_EOF) {
            return {};
        }
        if (got != ARCHIVE_OK) {
            return failed("the tar cannot be read", from);
        }
        if (archive_write_data_block(to, bytes, size, offset) != ARCHIVE_OK) {
            return failed("cannot write", to);
        }
    }
}

}  // namespace

Result<UnpackedTar> unpack_tar(int descriptor, const fs::path& folder) {
    std::error_code ec;
    // A link above the folder is the user's own; the flags guard against those below it.
    const fs::path root = fs::canonical(folder, ec);
    if (ec) {
        return io_error(folder.string() + ": " + ec.message());
    }
    const std::unique_ptr<archive, FreeReader> reader(archive_read_new());
    const std::unique_ptr<archive, FreeWriter> writer(archive_write_disk_new());
    if (!reader || !writer) {
        throw std::bad_alloc();
    }
    archive_read_support_format_tar(reader.get());
    archive_read_set_options(reader.get(), "hdrcharset=BINARY");
    archive_write_disk_set_options(writer.get(), kFlags);
    if (archive_read_open_fd(reader.get(), descriptor, kBlockBytes) != ARCHIVE_OK) {
        return failed("the tar cannot be read", reader.get());
    }
    UnpackedTar unpacked;
    for (;;) {
        archive_entry* entry = nullptr;
        const int got = archive_read_next_header(reader.get(), &entry);
        if (got == ARCHIVE_EOF) {
            break;
        }
        if (got != ARCHIVE_OK && got != ARCHIVE_WARN) {
            return failed("the tar cannot be read", reader.get());
        }
        if (std::string why = refusal(entry); !why.empty()) {
            return io_error(std::move(why));
        }
        const bool is_file = archive_entry_filetype(entry) == AE_IFREG;
        archive_entry_set_pathname(entry, (root / archive_entry_pathname(entry)).c_str());
        archive_entry_set_perm(entry, is_file ? kFileMode : kFolderMode);
        if (archive_write_header(writer.get(), entry) != ARCHIVE_OK) {
            return failed("cannot write", writer.get());
        }
        if (is_file) {
            if (Result<void> copied = copy_data(reader.get(), writer.get()); !copied) {
                return copied.error();
            }
            ++unpacked.files;
            unpacked.bytes += static_cast<std::uint64_t>(archive_entry_size(entry));
        }
        if (archive_write_finish_entry(writer.get()) != ARCHIVE_OK) {
            return failed("cannot write", writer.get());
        }
    }
    if (archive_write_close(writer.get()) != ARCHIVE_OK) {
        return failed("cannot write", writer.get());
    }
    return unpacked;
}

}  // namespace distilld::cli
