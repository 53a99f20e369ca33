#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "base/files/open_file.hpp"

namespace distilld {

enum class FileAccess {
    usual,         ///< determined by the umask
    folder_owner,  ///< readable only for the owner of its folder, even if root writes it
};

/// A file that appears under its name either complete or not at all: written under a temporary name in the same folder,
/// then fsync, rename, fsync of the folder. Torch-free. One thread at a time. Errors name the file and the reason.
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

    /// Makes the data written so far durable, so that commit() is quick.
    Result<void> sync();

    /// Makes the file durable under its final name, replacing an existing file. Call once, last.
    Result<void> commit();

  private:
    AtomicFile(std::filesystem::path path, FolderEntry entry, std::string temporary, Descriptor file);

    std::filesystem::path path_;
    FolderEntry entry_;  ///< both files are in this folder, even if its path changes meanwhile
    std::string temporary_;
    Descriptor file_;  ///< empty: committed
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

/// Bytes of the regular files in `folder` and below; 0 if it cannot be read.
[[nodiscard]] std::uint64_t folder_bytes(const std::filesystem::path& folder);

/// The whole content of a file. Refuses a file above `limit` bytes before it allocates memory.
Result<std::string> read_text_file(const std::filesystem::path& path, std::uint64_t limit,
                                   const FileRule* rule = file_rule());

}  // namespace distilld
