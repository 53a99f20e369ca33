#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "base/descriptor.hpp"
#include "base/error.hpp"

namespace distilld {

enum class LockShare { exclusive, shared };

/// Sole use of a folder among the processes of this machine, until it is destroyed or the process ends, however it
/// ends (flock(2)). The two ways to lock do not see each other: all users of a folder choose the same.
class FolderLock {
  public:
    /// Locks the folder itself, which leaves no file behind. Nothing when another process, or another lock of this one,
    /// has it. A file system that cannot lock folders (some network ones) gives everybody the lock. The error names the
    /// folder, which must exist.
    static Result<std::optional<FolderLock>> try_lock(const std::filesystem::path& folder);

    /// Locks the file `name` in the folder, which stays there: network file systems can do that too. Nothing when
    /// another process, or another lock of this one, has it; an error, with the file's name, when the file cannot be
    /// made or locked. Any number have a shared lock at once, while nobody has it alone. It is tried for `patience`.
    static Result<std::optional<FolderLock>> try_lock_file(const std::filesystem::path& folder,
                                                           LockShare share = LockShare::exclusive,
                                                           const std::string& name = "lock",
                                                           std::chrono::nanoseconds patience = {});

    /// Whether somebody has the lock of the file `name`, alone or shared; nothing when that cannot be told. Changes
    /// nothing, but has the lock for a moment: who wants it has patience.
    static std::optional<bool> is_held(const std::filesystem::path& folder, const std::string& name = "lock");

  private:
    explicit FolderLock(Descriptor locked) : locked_(std::move(locked)) {}

    Descriptor locked_;
};

}  // namespace distilld
