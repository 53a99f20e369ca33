#include "pipeline/data/token_draft.hpp"

#include <unistd.h>

#include <cerrno>
#include <limits>
#include <system_error>
#include <utility>

#include "base/files/files.hpp"
#include "base/files/open_file.hpp"

namespace distilld {

namespace fs = std::filesystem;

TokenDraft::TokenDraft(fs::path target)
    : target_(std::move(target)),
      folder_(target_.parent_path() / ("." + target_.filename().string() + "." + std::to_string(::getpid()) + ".tmp")) {
}

TokenDraft::~TokenDraft() {
    if (committed_) {
        return;
    }
    static_cast<void>(remove_tree(folder_));
    // Removes the folders that were created for it, unless they have other contents.
    for (fs::path above = target_.parent_path(); !first_made_.empty(); above = above.parent_path()) {
        if (!remove_entry(above) || above == first_made_) {
            return;
        }
    }
}

Result<void> TokenDraft::write(Descriptor& file, const std::string& name, std::span<const std::byte> bytes) {
    if (Result<void> made = room_ ? Result<void>() : make_folder(); !made) {
        return failed(made.error());
    }
    if (bytes.size() > *room_) {
        return failed(io_error("they would take more than half of the free disk space"));
    }
    *room_ -= bytes.size();
    if (!file) {
        Result<Descriptor> opened = open_file(folder_ / name, O_WRONLY | O_CREAT | O_EXCL);
        if (!opened) {
            return failed(opened.error());
        }
        file = std::move(*opened);
    }
    const Result<void> written = write_all(file.get(), bytes, folder_ / name);
    return written ? written : failed(written.error());
}

Result<MappedFile> TokenDraft::map(const std::string& name) {
    Result<MappedFile> map = MappedFile::open(folder_ / name);
    return map ? std::move(map) : failed(map.error());
}

Result<MappedFile> TokenDraft::seal(const Descriptor& file, const std::string& name) {
    if (::fsync(file.get()) != 0) {
        const std::string why = std::generic_category().message(errno);
        return failed(io_error((folder_ / name).string() + ": cannot make durable: " + why));
    }
    return map(name);
}

Result<void> TokenDraft::commit(const std::string& index) {
    const Result<void> renamed = rename(index);
    committed_ = renamed.has_value();
    return renamed ? renamed : failed(renamed.error());
}

Error TokenDraft::failed(Error error) {
    failure_ = error.message;
    return error;
}

Result<void> TokenDraft::make_folder() {
    std::error_code unknown;
    for (fs::path above = target_.parent_path(); !above.empty() && !fs::exists(above, unknown) && !unknown;
         above = above.parent_path()) {
        first_made_ = above;
    }
    if (Result<void> made = make_folders(folder_); !made) {
        return made;
    }
    const fs::space_info space = fs::space(folder_, unknown);
    const bool not_known = unknown || space.available == static_cast<std::uintmax_t>(-1);
    room_ = not_known ? std::numeric_limits<std::uint64_t>::max() : space.available / 2;
    return {};
}

Result<void> TokenDraft::rename(const std::string& index) {
    if (Result<void> written = write_file_atomically(folder_ / kTokenIndex, index); !written) {
        return written;
    }
    static_cast<void>(remove_tree(target_));
    const Result<void> renamed = rename_entry(folder_, target_);
    return renamed ? sync_folder(target_.parent_path()) : renamed;
}

}  // namespace distilld
