#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "base/open_file.hpp"

namespace distilld {

enum class FileAccess {
    usual,         ///< as the umask says
    folder_owner,  ///< only for the owner of its folder, even when root writes it
};

/// A file that appears under its name whole or not at all: written beside its final path under a temporary name, then
/// fsync, rename, fsync of the folder. Torch-free. One thread at a time. Errors name the file and the reason.
class AtomicFile {
  public:
    /// Opens a temporary file in the folder of `path`, which must exist.
    static Result<AtomicFile> create(const std::filesystem::path& path, FileAccess access = FileAccess::usual);

    AtomicFile(AtomicFile&& other) noexcept;
    AtomicFile& operator=(AtomicFile&& other) noexcept;
    AtomicFile(const AtomicFile&) = delete;
    AtomicFile& operator=(const AtomicFile&) = delete;
    /// Removes the temporary file unless commit() succeeded.
    ~AtomicFile();

    /// Appends all of `bytes`.
    Result<void> write(std::span<const std::byte> bytes);
    Result<void> write(std::string_view text);

    /// Makes what was written durable, so that commit() takes no time.
    Result<void> sync();

    /// Makes the file durable under its final name, replacing what was there. Call once, last.
    Result<void> commit();

  private:
    AtomicFile(std::filesystem::path path, FolderEntry entry, std::string temporary, Descriptor file);

    std::filesystem::path path_;
    FolderEntry entry_;  ///< the temporary file and the final one lie in one folder, whatever its path leads to by then
    std::string temporary_;
    Descriptor file_;  ///< none: committed
};

/// Writes all of `bytes` to an open file; the error names `path`.
Result<void> write_all(int file, std::span<const std::byte> bytes, const std::filesystem::path& path);

/// create, write, commit.
Result<void> write_file_atomically(const std::filesystem::path& path, std::string_view content,
                                   FileAccess access = FileAccess::usual);

/// Byte-for-byte copy, atomic like the above.
Result<void> copy_file_atomically(const std::filesystem::path& from, const std::filesystem::path& to);

/// Makes renames and removals in `folder` durable.
Result<void> sync_folder(const std::filesystem::path& folder);

/// Of the regular files in `folder` and below it; 0 when it cannot be read.
[[nodiscard]] std::uint64_t folder_bytes(const std::filesystem::path& folder);

/// Whole content of a file; one larger than `limit` bytes is refused before memory is allocated.
Result<std::string> read_text_file(const std::filesystem::path& path, std::uint64_t limit,
                                   const FileRule* rule = file_rule());

}  // namespace distilld
