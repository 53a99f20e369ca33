#include "models/checkpoint/store.hpp"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/files.hpp"
#include "models/checkpoint/manifest.hpp"

namespace distilld::models {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kTemporaryPrefix = ".tmp-";
constexpr std::string_view kOldPrefix = "old-";
constexpr std::string_view kGonePrefix = "gone-";
constexpr std::string_view kDamagedSuffix = ".damaged";

Error failure(std::string_view what, const fs::path& path, const std::error_code& code) {
    return write_error("cannot " + std::string(what) + " " + path.string() + ": " + code.message(), code.value());
}

std::error_code last_error() {
    return {errno, std::system_category()};
}

/// Step of a folder name, if it is a checkpoint's.
std::optional<std::uint64_t> step_of(std::string_view name) {
    if (!name.starts_with(kPrefix)) {
        return std::nullopt;
    }
    const char* first = name.data() + kPrefix.size();
    const char* last = name.data() + name.size();
    std::uint64_t step = 0;
    const auto [end, bad] = std::from_chars(first, last, step);
    if (bad != std::errc() || end != last || first == last) {
        return std::nullopt;
    }
    return step;
}

/// A name under which an interrupted commit or removal leaves what it was at.
bool is_leftover(std::string_view name) {
    if (!name.starts_with(kTemporaryPrefix)) {
        return false;
    }
    name.remove_prefix(kTemporaryPrefix.size());
    for (const std::string_view prefix : {kOldPrefix, kGonePrefix}) {
        if (name.starts_with(prefix)) {
            name.remove_prefix(prefix.size());
            break;
        }
    }
    return step_of(name).has_value();
}

/// Whether distilld wrote the folder: its manifest says so.
Result<void> has_our_manifest(const fs::path& folder) {
    const Result<CheckpointManifest> manifest = read_checkpoint_manifest(folder);
    return manifest ? Result<void>() : Result<void>(manifest.error());
}

struct Found {
    std::uint64_t step = 0;
    fs::path folder;
};

struct Content {
    std::vector<Found> checkpoints;  ///< by falling step
    std::vector<fs::path> leftovers;
};

/// What the folder holds. A folder that does not exist is empty.
Result<Content> scan(const fs::path& folder) {
    Content content;
    std::error_code code;
    fs::directory_iterator entries(folder, code);
    if (code == std::errc::no_such_file_or_directory) {
        return content;
    }
    for (; !code && entries != fs::directory_iterator(); entries.increment(code)) {
        const std::string name = entries->path().filename().string();
        if (const auto step = step_of(name)) {
            content.checkpoints.push_back({*step, entries->path()});
        } else if (is_leftover(name)) {
            content.leftovers.push_back(entries->path());
        }
    }
    if (code) {
        return failure("read folder", folder, code);
    }
    std::sort(content.checkpoints.begin(), content.checkpoints.end(),
              [](const Found& a, const Found& b) { return a.step > b.step; });
    return content;
}

Result<void> sync_file(const fs::path& path) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
        return failure("open", path, last_error());
    }
    const bool ok = ::fsync(descriptor) == 0;
    const std::error_code code = last_error();
    ::close(descriptor);
    if (!ok) {
        return failure("sync", path, code);
    }
    return {};
}

/// Every file of a flat folder, then the folder.
Result<void> sync_content(const fs::path& folder) {
    std::error_code code;
    fs::directory_iterator entries(folder, code);
    for (; !code && entries != fs::directory_iterator(); entries.increment(code)) {
        if (const Result<void> synced = sync_file(entries->path()); !synced) {
            return synced.error();
        }
    }
    if (code) {
        return failure("read folder", folder, code);
    }
    return sync_folder(folder);
}

Result<void> remove_tree(const fs::path& path) {
    std::error_code code;
    fs::remove_all(path, code);
    if (code) {
        return failure("remove", path, code);
    }
    return {};
}

/// Puts `from` under the name `to`. One that is there changes places with it, so that at no instant there is none.
Result<void> put_in_place(const fs::path& from, const fs::path& to) {
    std::error_code code;
    if (!fs::exists(fs::symlink_status(to, code))) {
        fs::rename(from, to, code);
        if (code) {
            return failure("rename " + from.string() + " to", to, code);
        }
        return {};
    }
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
        return remove_tree(from);
    }
    if (errno != EINVAL && errno != ENOSYS) {
        return failure("exchange " + from.string() + " with", to, last_error());
    }
    // A file system that cannot exchange (some network ones): the old one steps aside first.
    const fs::path aside =
        to.parent_path() / (std::string(kTemporaryPrefix) + std::string(kOldPrefix) + to.filename().string());
    fs::rename(to, aside, code);
    if (!code) {
        fs::rename(from, to, code);
    }
    if (code) {
        return failure("rename " + from.string() + " to", to, code);
    }
    return remove_tree(aside);
}

/// Under a temporary name first: a removal cut short must not leave half a checkpoint.
Result<void> remove_checkpoint(const fs::path& folder) {
    const std::string gone = std::string(kTemporaryPrefix) + std::string(kGonePrefix) + folder.filename().string();
    const fs::path doomed = folder.parent_path() / gone;
    std::error_code code;
    fs::rename(folder, doomed, code);
    if (code) {
        return failure("rename", folder, code);
    }
    return remove_tree(doomed);
}

}  // namespace

std::string checkpoint_name(std::uint64_t step) {
    std::string digits = std::to_string(step);
    if (digits.size() < 8) {
        digits.insert(0, 8 - digits.size(), '0');
    }
    return std::string(kPrefix) + digits;
}

CheckpointStore::CheckpointStore(fs::path folder, std::uint32_t keep)
    : folder_(std::move(folder)), keep_(std::max<std::uint32_t>(keep, 1)) {}

Result<fs::path> CheckpointStore::commit(std::uint64_t step, const StudentSnapshot& snapshot) {
    std::error_code code;
    fs::create_directories(folder_, code);
    if (code) {
        return failure("create folder", folder_, code);
    }
    if (const Result<void> removed = remove_leftovers(); !removed) {
        return removed.error();
    }
    const std::string name = checkpoint_name(step);
    const fs::path temporary = folder_ / (std::string(kTemporaryPrefix) + name);
    const fs::path final_folder = folder_ / name;
    const bool is_there = fs::exists(fs::symlink_status(final_folder, code));
    const Result<void> ours = is_there ? has_our_manifest(final_folder) : Result<void>();
    if (!ours && ours.error().kind == ErrorKind::disk_full) {
        return ours.error();
    }
    if (!ours) {
        return invalid_input(final_folder.string() +
                             " is in the way of a checkpoint and has no manifest of one: move it elsewhere, or name "
                             "another folder in /checkpoint/dir");
    }

    Result<void> done = snapshot.write_checkpoint(temporary);
    if (done) {
        done = sync_content(temporary);
    }
    if (done) {
        done = put_in_place(temporary, final_folder);
    }
    if (done) {
        done = sync_folder(folder_);
    }
    if (!done) {
        fs::remove_all(temporary, code);  // the disk may be full; the error to report is the first one
        return done.error();
    }
    if (const Result<void> pruned = prune(step); !pruned) {
        return pruned.error();
    }
    return final_folder;
}

Result<NewestCheckpoint> CheckpointStore::newest() const {
    const Result<Content> content = scan(folder_);
    if (!content) {
        return content.error();
    }
    NewestCheckpoint found;
    for (const Found& candidate : content->checkpoints) {
        const Result<CheckpointManifest> manifest = read_checkpoint_manifest(candidate.folder);
        Result<void> whole;
        if (!manifest) {
            whole = manifest.error();
        } else {
            whole = verify_checkpoint_files(candidate.folder, *manifest);
        }
        if (whole) {
            found.folder = candidate.folder;
            return found;
        }
        found.warning += found.warning.empty() ? "" : "; ";
        std::error_code code;
        if (whole.error().kind == ErrorKind::io && fs::exists(candidate.folder / kManifestFile, code)) {
            found.damaged.push_back(candidate.folder);
        }
        found.warning += "checkpoint " + candidate.folder.string() + " cannot be used: " + whole.error().message;
    }
    return found;
}

Result<std::vector<CheckpointEntry>> CheckpointStore::entries() const {
    const Result<Content> content = scan(folder_);
    if (!content) {
        return content.error();
    }
    std::vector<CheckpointEntry> entries;
    for (const Found& found : content->checkpoints) {
        CheckpointEntry entry{found.step, found.folder, {}};
        if (Result<CheckpointManifest> manifest = read_checkpoint_manifest(found.folder)) {
            entry.run = std::move(manifest->run);
        }
        entries.push_back(std::move(entry));
    }
    return entries;
}

Result<void> CheckpointStore::clear() {
    const Result<std::vector<CheckpointEntry>> all = entries();
    if (!all) {
        return all.error();
    }
    for (const CheckpointEntry& entry : *all) {
        if (!entry.run) {
            continue;
        }
        if (Result<void> removed = remove_checkpoint(entry.folder); !removed) {
            return removed;
        }
    }
    return {};
}

Result<std::vector<fs::path>> CheckpointStore::set_aside(const std::vector<fs::path>& damaged) {
    std::vector<fs::path> aside;
    for (const fs::path& folder : damaged) {
        std::error_code code;
        fs::path free = folder;
        free += kDamagedSuffix;
        for (int number = 2; fs::exists(fs::symlink_status(free, code)); ++number) {
            free = folder;
            free += std::string(kDamagedSuffix) + "." + std::to_string(number);
        }
        fs::rename(folder, free, code);
        if (code) {
            return failure("rename " + folder.string() + " to", free, code);
        }
        aside.push_back(std::move(free));
    }
    return aside;
}

Result<void> CheckpointStore::remove_leftovers() {
    const Result<Content> content = scan(folder_);
    if (!content) {
        return content.error();
    }
    for (const fs::path& leftover : content->leftovers) {
        if (const Result<void> removed = remove_tree(leftover); !removed) {
            return removed.error();
        }
    }
    return {};
}

Result<void> CheckpointStore::prune(std::uint64_t newest_step) {
    const Result<Content> content = scan(folder_);
    if (!content) {
        return content.error();
    }
    std::uint32_t kept = 0;
    for (const Found& candidate : content->checkpoints) {
        if (!has_our_manifest(candidate.folder)) {
            continue;
        }
        if (candidate.step <= newest_step && kept < keep_) {
            ++kept;
            continue;
        }
        if (const Result<void> removed = remove_checkpoint(candidate.folder); !removed) {
            return removed.error();
        }
    }
    return {};
}

}  // namespace distilld::models
