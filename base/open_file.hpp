#pragma once

#include <fcntl.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.hpp"
#include "base/error.hpp"
#include "base/file_rule.hpp"

/// The way to every file and folder (docs/decisions/0009-how-files-are-opened.md). Any thread. Errors name the path;
/// one of kind path_not_allowed: the rule of this process, or the one given, does not let it be opened.
namespace distilld {

/// From here on this process opens only what `rule` allows. Once, before anything is opened for a job; a second call
/// throws.
void confine_files(FileRule rule);

/// The rule of this process; nullptr: there is none.
[[nodiscard]] const FileRule* file_rule() noexcept;

/// What the user named at `place`, a JSON pointer, and cannot be used: invalid_input, and a refusal stays one.
[[nodiscard]] inline Error invalid_at(const std::string& place, const Error& cause) {
    const bool refused = cause.kind == ErrorKind::path_not_allowed;
    return Error{refused ? cause.kind : ErrorKind::invalid_input, place + ": " + cause.message};
}

/// Opens a regular file, by where its path leads. Nothing is waited for: a pipe, a socket or a device is refused.
/// `flags` as open(2) has them.
Result<Descriptor> open_file(const std::filesystem::path& path, int flags, mode_t mode = 0666,
                             const FileRule* rule = file_rule());

/// Opens a folder for reading.
Result<Descriptor> open_folder(const std::filesystem::path& path, const FileRule* rule = file_rule());

/// A name in an open folder: what is made, renamed or removed by it happens in that folder, wherever the folder's path
/// leads by then. The name itself is not followed.
struct FolderEntry {
    Descriptor folder;  ///< O_PATH
    std::string name;
};
Result<FolderEntry> open_folder_of(const std::filesystem::path& path, const FileRule* rule = file_rule());

/// Makes the folder and those above it, as far as they are missing.
Result<void> make_folders(const std::filesystem::path& folder);

/// Makes a folder that was not there, in one that is.
Result<void> make_new_folder(const std::filesystem::path& folder);

/// The names in a folder, in no order; of one that is not there none.
Result<std::vector<std::string>> names_in(const std::filesystem::path& folder, const FileRule* rule = file_rule());

/// rename(2), which replaces a file, and an empty folder by a folder.
Result<void> rename_entry(const std::filesystem::path& from, const std::filesystem::path& to);

/// Lets two names change places. False: their file system cannot.
Result<bool> exchange_entries(const std::filesystem::path& one, const std::filesystem::path& other);

/// Removes a file, a link or an empty folder. One that is not there is no error.
Result<void> remove_entry(const std::filesystem::path& path);

/// Removes a file or a folder with all that lies in it. Links are removed, not followed.
Result<void> remove_tree(const std::filesystem::path& path);

}  // namespace distilld
