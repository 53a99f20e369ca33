#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/files/descriptor.hpp"

namespace distilld {

enum class LockShare { exclusive, shared };

/// Exclusive use of a folder among the processes of this machine, until destruction or the end of the process
/// (flock(2)).
class FolderLock {
  public:
    /// Locks the file `name` in the folder, which stays there; this also works on network file systems. Tries for
    /// `timeout`; nullopt if another process, or another lock of this one, holds the lock. Several may hold a shared
    /// lock while nobody holds it exclusively. An error names the file if it cannot be created or locked.
    static Result<std::optional<FolderLock>> try_lock_file(const std::filesystem::path& folder,
                                                           LockShare share = LockShare::exclusive,
                                                           const std::string& name = "lock",
                                                           std::chrono::nanoseconds timeout = {});

    /// Whether the lock of the file `name` is held, exclusively or shared; nullopt if unknown. Holds the lock for a
    /// moment, so others must retry.
    static std::optional<bool> is_held(const std::filesystem::path& folder, const std::string& name = "lock");

  private:
    explicit FolderLock(Descriptor locked) : locked_(std::move(locked)) {}

    Descriptor locked_;
};

}  // namespace distilld
