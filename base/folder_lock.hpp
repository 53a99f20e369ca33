#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "base/error.hpp"

namespace distilld {

enum class LockShare { exclusive, shared };

/// Sole use of a folder among the processes of this machine, until it is destroyed or the process ends, however it
/// ends (flock(2)). The two ways to lock do not see each other: all users of a folder choose the same.
class FolderLock {
  public:
    FolderLock(FolderLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
    FolderLock& operator=(FolderLock&& other) noexcept {
        std::swap(descriptor_, other.descriptor_);
        return *this;
    }
    FolderLock(const FolderLock&) = delete;
    FolderLock& operator=(const FolderLock&) = delete;
    ~FolderLock();

    /// Locks the folder itself, which leaves no file behind. Nothing when another process, or another lock of this one,
    /// has it. A file system that cannot lock folders (some network ones) gives everybody the lock. The error names the
    /// folder, which must exist.
    static Result<std::optional<FolderLock>> try_lock(const std::filesystem::path& folder);

    /// Locks the file `name` in the folder, which stays there: network file systems can do that too. Nothing when
    /// another process, or another lock of this one, has it; an error, with the file's name, when the file cannot be
    /// made or locked. Any number have a shared lock at once, while nobody has it alone.
    static Result<std::optional<FolderLock>> try_lock_file(const std::filesystem::path& folder,
                                                           LockShare share = LockShare::exclusive,
                                                           const std::string& name = "lock");

  private:
    explicit FolderLock(int descriptor) : descriptor_(descriptor) {}

    int descriptor_ = -1;
};

}  // namespace distilld
