#include "server/jobs/routes/artifact_archive.hpp"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/error.hpp"

namespace distilld {
namespace {

constexpr std::size_t kReadBytes = 64U << 10;
constexpr int kFileMode = 0644;
constexpr int kFolderMode = 0755;

bool is_ascii(const ArtifactEntry& entry) {
    return std::ranges::none_of(entry.name, [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
}

struct FreeEntry {
    void operator()(archive_entry* entry) const { archive_entry_free(entry); }
};

}  // namespace

struct ArtifactArchive::Sink {
    std::string piece;       ///< written and not yet taken
    bool wants_more = true;  ///< false: libarchive is told that the write failed

    static la_ssize_t append(archive*, void* sink, const void* bytes, std::size_t size) {
        auto& mine = *static_cast<Sink*>(sink);
        if (!mine.wants_more) {
            return -1;
        }
        mine.piece.append(static_cast<const char*>(bytes), size);
        return static_cast<la_ssize_t>(size);
    }
};

void ArtifactArchive::Free::operator()(archive* writer) const {
    archive_write_free(writer);
}

ArtifactArchive::ArtifactArchive(ArtifactFolder folder, std::vector<ArtifactEntry> entries)
    : folder_(std::move(folder)),
      entries_(std::move(entries)),
      sink_(std::make_unique<Sink>()),
      writer_(archive_write_new()) {
    if (!writer_) {
        throw std::bad_alloc();
    }
    check(archive_write_set_format_pax_restricted(writer_.get()));
    // Names are bytes: converting them would depend on the locale. Set only if needed, since it costs one more header
    // per file, and GNU tar says that it does not know it.
    if (!std::ranges::all_of(entries_, is_ascii)) {
        check(archive_write_set_options(writer_.get(), "hdrcharset=BINARY"));
    }
    check(archive_write_set_bytes_per_block(writer_.get(), 0));
    check(archive_write_open(writer_.get(), sink_.get(), nullptr, Sink::append, nullptr));
}

ArtifactArchive::~ArtifactArchive() {
    // Closed early, libarchive would pad the current file to its full size, however large. It must not be told to fail
    // (archive_write_fail): then it keeps what it opened.
    sink_->wants_more = false;
}

std::optional<std::string> ArtifactArchive::next() {
    while (sink_->piece.size() < kPieceBytes && !closed_) {
        if (file_) {
            const std::string bytes = file_->read(kReadBytes);
            if (bytes.empty()) {
                file_.reset();
            } else if (archive_write_data(writer_.get(), bytes.data(), bytes.size()) !=
                       static_cast<la_ssize_t>(bytes.size())) {
                check(ARCHIVE_FATAL);
            }
        } else if (next_entry_ < entries_.size()) {
            begin_entry(entries_[next_entry_++]);
        } else {
            check(archive_write_close(writer_.get()));
            closed_ = true;
        }
    }
    if (sink_->piece.empty()) {
        return std::nullopt;
    }
    return std::exchange(sink_->piece, {});
}

void ArtifactArchive::begin_entry(const ArtifactEntry& entry) {
    const std::unique_ptr<archive_entry, FreeEntry> header(archive_entry_new());
    if (!header) {
        throw std::bad_alloc();
    }
    archive_entry_set_pathname(header.get(), (entry.folder ? entry.name + "/" : entry.name).c_str());
    if (entry.folder) {
        struct stat status{};
        if (::fstatat(folder_.open->get(), entry.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
            throw ErrorException(io_error(entry.name + " disappeared while the folder was read"));
        }
        archive_entry_set_filetype(header.get(), AE_IFDIR);
        archive_entry_set_perm(header.get(), kFolderMode);
        archive_entry_set_mtime(header.get(), status.st_mtime, 0);
    } else {
        auto opened = open_artifact(folder_, entry.name);
        if (!opened) {
            throw ErrorException(opened.error());
        }
        if (!*opened) {
            throw ErrorException(io_error(entry.name + " disappeared while the folder was read"));
        }
        file_.emplace(std::move(**opened));
        archive_entry_set_filetype(header.get(), AE_IFREG);
        archive_entry_set_perm(header.get(), kFileMode);
        archive_entry_set_mtime(header.get(), file_->modified, 0);
        archive_entry_set_size(header.get(), static_cast<la_int64_t>(file_->size));
    }
    check(archive_write_header(writer_.get(), header.get()));
}

void ArtifactArchive::check(int status) const {
    if (status != ARCHIVE_OK) {
        const char* why = archive_error_string(writer_.get());
        throw ErrorException(
            io_error(std::string("cannot write the tar: ") + (why != nullptr ? why : "no reason given")));
    }
}

}  // namespace distilld
