#pragma once

#include <fcntl.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/files/descriptor.hpp"
#include "base/files/file_rule.hpp"

/// The only way to open files and folders (docs/decisions/0009-how-files-are-opened.md). Any thread. Errors name the
/// path; path_not_allowed means that the rule of this process, or the given one, forbids it.
namespace distilld {

/// From now on, this process opens only what `rule` allows. Call once, before anything is opened for a job; a second
/// call throws.
void confine_files(FileRule rule);

/// The rule of this process; nullptr if there is none.
[[nodiscard]] const FileRule* file_rule() noexcept;

/// The error for an unusable path that the user named at `place`, a JSON pointer. path_not_allowed keeps its kind.
[[nodiscard]] inline Error invalid_at(const std::string& place, const Error& cause) {
    const bool refused = cause.kind == ErrorKind::path_not_allowed;
    return Error{refused ? cause.kind : ErrorKind::invalid_input, place + ": " + cause.message};
}

/// Opens a regular file and follows links. Never blocks: refuses pipes, sockets and devices. `flags` as in open(2).
Result<Descriptor> open_file(const std::filesystem::path& path, int flags, mode_t mode = 0666,
                             const FileRule* rule = file_rule());

/// Opens a folder for reading.
Result<Descriptor> open_folder(const std::filesystem::path& path, const FileRule* rule = file_rule());

/// A name in an open folder. Files are created, renamed and removed in that folder, even if its path leads elsewhere by
/// then. The name itself is not followed.
struct FolderEntry {
    Descriptor folder;  ///< O_PATH
    std::string name;
};
Result<FolderEntry> open_folder_of(const std::filesystem::path& path, const FileRule* rule = file_rule());

/// Creates the folder and missing folders above it.
Result<void> make_folders(const std::filesystem::path& folder);

/// Creates a new folder in an existing one.
Result<void> make_new_folder(const std::filesystem::path& folder);

/// The names in a folder, unordered; none if it does not exist.
Result<std::vector<std::string>> names_in(const std::filesystem::path& folder, const FileRule* rule = file_rule());

/// rename(2): replaces a file, and an empty folder by a folder.
Result<void> rename_entry(const std::filesystem::path& from, const std::filesystem::path& to);

/// Exchanges two names atomically. False if the file system cannot do that.
Result<bool> exchange_entries(const std::filesystem::path& one, const std::filesystem::path& other);

/// Removes a file, a link or an empty folder. A missing one is not an error.
Result<void> remove_entry(const std::filesystem::path& path);

/// Removes a file, or a folder with its contents. Links are removed, not followed.
Result<void> remove_tree(const std::filesystem::path& path);

}  // namespace distilld
