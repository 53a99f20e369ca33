#include "pipeline/data/token_draft.hpp"

#include <unistd.h>

#include <limits>
#include <system_error>
#include <utility>

#include "base/files.hpp"
#include "base/open_file.hpp"
#include "pipeline/data/kept_bytes.hpp"

namespace distilld {

namespace fs = std::filesystem;

TokenDraft::TokenDraft(fs::path target, std::uint64_t min_bytes, Warn warn)
    : target_(std::move(target)),
      folder_(target_.parent_path() / ("." + target_.filename().string() + "." + std::to_string(::getpid()) + ".tmp")),
      min_bytes_(min_bytes),
      warn_(std::move(warn)) {}

TokenDraft::~TokenDraft() {
    if (state_ != State::committed) {
        remove();
    }
}

bool TokenDraft::takes_files() {
    if (state_ == State::waiting && counted_ >= min_bytes_) {
        if (const Result<void> made = make_folder(); made) {
            state_ = State::open;
        } else {
            give_up(made.error().message);
        }
    }
    return state_ == State::open;
}

bool TokenDraft::takes(std::uint64_t bytes) {
    if (state_ == State::open && bytes > max_written_ - written_) {
        give_up("they would take more than half of what is free on the disk");
    }
    written_ += state_ == State::open ? bytes : 0;
    return state_ == State::open;
}

void TokenDraft::give_up(const std::string& why) {
    if (state_ == State::given_up) {
        return;
    }
    state_ = State::given_up;
    warn_("tokens are held in memory and read again at the next start, as " + target_.parent_path().string() +
          " cannot keep them: " + why);
    remove();
}

bool TokenDraft::commit(const std::string& index) {
    if (state_ != State::open) {
        return false;
    }
    if (const Result<void> renamed = rename(index); !renamed) {
        give_up(renamed.error().message);
        return false;
    }
    state_ = State::committed;
    return true;
}

Result<void> TokenDraft::make_folder() {
    std::error_code failed;
    for (fs::path above = target_.parent_path(); !above.empty() && !fs::exists(above, failed) && !failed;
         above = above.parent_path()) {
        first_made_ = above;
    }
    failed.clear();
    if (Result<void> made = make_folders(folder_); !made) {
        return made;
    }
    const fs::space_info space = fs::space(folder_, failed);
    const bool unknown = failed || space.available == static_cast<std::uintmax_t>(-1);
    max_written_ = unknown ? std::numeric_limits<std::uint64_t>::max() : space.available / 2;
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

void TokenDraft::remove() noexcept {
    static_cast<void>(remove_tree(folder_));
    // Folders that were made for it, as far as nothing else came to lie in them.
    for (fs::path above = target_.parent_path(); !first_made_.empty(); above = above.parent_path()) {
        if (!remove_entry(above) || above == first_made_) {
            return;
        }
    }
}

}  // namespace distilld
