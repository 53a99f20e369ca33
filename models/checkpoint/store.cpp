#include "models/checkpoint/store.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/ascii.hpp"
#include "base/files/files.hpp"
#include "base/files/open_file.hpp"
#include "base/hex.hpp"
#include "models/checkpoint/manifest.hpp"

namespace distilld::models {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kTemporaryPrefix = ".tmp-";
constexpr std::string_view kOldPrefix = "old-";
constexpr std::string_view kGonePrefix = "gone-";
constexpr std::string_view kDamagedSuffix = ".damaged";
constexpr std::size_t kHolderDigits = 16;  ///< of FolderFence::holder()

Error failure(std::string_view what, const fs::path& path, const std::error_code& code) {
    return write_error("cannot " + std::string(what) + " " + path.string() + ": " + code.message(), code.value());
}

std::error_code last_error() {
    return {errno, std::system_category()};
}

/// The step in a folder name, if it is a checkpoint's.
std::optional<std::uint64_t> step_of(std::string_view name) {
    return name.starts_with(kPrefix) ? number_from<std::uint64_t>(name.substr(kPrefix.size())) : std::nullopt;
}

/// Whether an interrupted commit or removal may have left this name behind.
bool is_leftover(std::string_view name) {
    if (!name.starts_with(kTemporaryPrefix)) {
        return false;
    }
    name.remove_prefix(kTemporaryPrefix.size());
    const auto dot = name.find('.');
    if (dot != std::string_view::npos && name.size() - dot == 1 + kHolderDigits && is_hex(name.substr(dot + 1))) {
        name = name.substr(0, dot);
    }
    for (const std::string_view prefix : {kOldPrefix, kGonePrefix}) {
        if (name.starts_with(prefix)) {
            name.remove_prefix(prefix.size());
            break;
        }
    }
    return step_of(name).has_value();
}

/// Whether distilld wrote the folder, judged by its manifest.
Result<void> has_our_manifest(const fs::path& folder) {
    const Result<CheckpointManifest> manifest = read_checkpoint_manifest(folder);
    return manifest ? Result<void>() : Result<void>(manifest.error());
}

struct Found {
    std::uint64_t step = 0;
    fs::path folder;
};

struct Content {
    std::vector<Found> checkpoints;  ///< by descending step
    std::vector<fs::path> leftovers;
};

/// The content of the folder. A folder that does not exist is empty.
Result<Content> scan(const fs::path& folder) {
    Content content;
    const Result<std::vector<std::string>> names = names_in(folder);
    if (!names) {
        return names.error();
    }
    for (const std::string& name : *names) {
        if (const auto step = step_of(name)) {
            content.checkpoints.push_back({*step, folder / name});
        } else if (is_leftover(name)) {
            content.leftovers.push_back(folder / name);
        }
    }
    std::sort(content.checkpoints.begin(), content.checkpoints.end(),
              [](const Found& a, const Found& b) { return a.step > b.step; });
    return content;
}

Result<void> sync_file(const fs::path& path) {
    const Result<Descriptor> file = open_file(path, O_RDONLY);
    if (!file) {
        return file.error();
    }
    return ::fsync(file->get()) == 0 ? Result<void>() : failure("sync", path, last_error());
}

/// Syncs every file of a flat folder, then the folder.
Result<void> sync_content(const fs::path& folder) {
    const Result<std::vector<std::string>> names = names_in(folder);
    if (!names) {
        return names.error();
    }
    for (const std::string& name : *names) {
        if (const Result<void> synced = sync_file(folder / name); !synced) {
            return synced.error();
        }
    }
    return sync_folder(folder);
}

/// Renames `from` to `to`. An existing `to` is exchanged with it and then removed, so that `to` always exists.
Result<void> put_in_place(const fs::path& from, const fs::path& to) {
    std::error_code code;
    if (!fs::exists(fs::symlink_status(to, code))) {
        return rename_entry(from, to);
    }
    const Result<bool> exchanged = exchange_entries(from, to);
    if (!exchanged) {
        return exchanged.error();
    }
    if (*exchanged) {
        return remove_tree(from);
    }
    // Some network file systems cannot exchange names: the old folder steps aside first.
    const fs::path aside =
        to.parent_path() / (std::string(kTemporaryPrefix) + std::string(kOldPrefix) + to.filename().string());
    Result<void> done = rename_entry(to, aside);
    if (done) {
        done = rename_entry(from, to);
    }
    return done ? remove_tree(aside) : done;
}

/// The first half of a removal: an interrupted one must not leave half a checkpoint. Appends the new path.
Result<void> doom(const fs::path& folder, std::vector<fs::path>& doomed) {
    const std::string gone = std::string(kTemporaryPrefix) + std::string(kGonePrefix) + folder.filename().string();
    doomed.push_back(folder.parent_path() / gone);
    return rename_entry(folder, doomed.back());
}

Result<void> remove_all(const std::vector<fs::path>& folders) {
    for (const fs::path& folder : folders) {
        if (Result<void> removed = remove_tree(folder); !removed) {
            return removed;
        }
    }
    return {};
}

}  // namespace

std::string checkpoint_name(std::uint64_t step) {
    std::string digits = std::to_string(step);
    if (digits.size() < 8) {
        digits.insert(0, 8 - digits.size(), '0');
    }
    return std::string(kPrefix) + digits;
}

CheckpointStore::CheckpointStore(fs::path folder, std::uint32_t keep, FolderFence* fence)
    : folder_(std::move(folder)), keep_(std::max<std::uint32_t>(keep, 1)), fence_(fence) {}

Result<void> CheckpointStore::change(const std::function<Result<void>()>& change) {
    return fence_ == nullptr ? change() : fence_->commit(change);
}

std::string CheckpointStore::temporary_name(const std::string& name) const {
    return std::string(kTemporaryPrefix) + name + (fence_ == nullptr ? "" : "." + fence_->holder());
}

Result<fs::path> CheckpointStore::commit(std::uint64_t step, const StudentSnapshot& snapshot) {
    if (const Result<void> made = make_folders(folder_); !made) {
        return made.error();
    }
    if (const Result<void> removed = remove_leftovers(); !removed) {
        return removed.error();
    }
    const std::string name = checkpoint_name(step);
    const fs::path temporary = folder_ / temporary_name(name);
    const fs::path final_folder = folder_ / name;
    std::error_code code;
    const bool is_there = fs::exists(fs::symlink_status(final_folder, code));
    const Result<void> known = is_there ? has_our_manifest(final_folder) : Result<void>();
    if (!known && known.error().kind == ErrorKind::disk_full) {
        return known.error();
    }
    if (!known) {
        return invalid_input(final_folder.string() +
                             " is in the way of a checkpoint and has no manifest of one: move it elsewhere, or name "
                             "another folder in /checkpoint/dir");
    }

    std::vector<fs::path> doomed;
    const auto publish = [&]() -> Result<void> {
        Result<void> placed = put_in_place(temporary, final_folder);
        if (placed) {
            placed = sync_folder(folder_);
        }
        return placed ? prune(step, doomed) : placed;
    };
    Result<void> done = snapshot.write_checkpoint(temporary);
    if (done) {
        done = sync_content(temporary);
    }
    if (done) {
        done = change(publish);
    }
    if (!done) {
        static_cast<void>(remove_tree(temporary));  // the disk may be full; report the first error
        return done.error();
    }
    if (const Result<void> removed = remove_all(doomed); !removed) {
        return removed.error();
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
        if (whole.error().kind == ErrorKind::path_not_allowed) {
            return whole.error();
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
    std::vector<fs::path> doomed;
    const Result<void> done = change([&]() -> Result<void> {
        const Result<std::vector<CheckpointEntry>> all = entries();
        if (!all) {
            return all.error();
        }
        for (const CheckpointEntry& entry : *all) {
            if (Result<void> gone = entry.run ? doom(entry.folder, doomed) : Result<void>(); !gone) {
                return gone;
            }
        }
        return {};
    });
    return done ? remove_all(doomed) : done;
}

Result<std::vector<fs::path>> CheckpointStore::set_aside(const std::vector<fs::path>& damaged) {
    std::vector<fs::path> aside;
    const Result<void> done = damaged.empty() ? Result<void>() : change([&]() -> Result<void> {
        for (const fs::path& folder : damaged) {
            std::error_code code;
            fs::path free = folder;
            free += kDamagedSuffix;
            for (int number = 2; fs::exists(fs::symlink_status(free, code)); ++number) {
                free = folder;
                free += std::string(kDamagedSuffix) + "." + std::to_string(number);
            }
            if (Result<void> renamed = rename_entry(folder, free); !renamed) {
                return renamed;
            }
            aside.push_back(std::move(free));
        }
        return {};
    });
    return done ? Result<std::vector<fs::path>>(std::move(aside)) : done.error();
}

Result<void> CheckpointStore::remove_leftovers() {
    return change([this] { return remove_leftovers_now(); });
}

Result<void> CheckpointStore::remove_leftovers_now() {
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

Result<void> CheckpointStore::prune(std::uint64_t newest_step, std::vector<fs::path>& doomed) {
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
        if (const Result<void> gone = doom(candidate.folder, doomed); !gone) {
            return gone.error();
        }
    }
    return {};
}

}  // namespace distilld::models
