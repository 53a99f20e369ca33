#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/describes.hpp"
#include "base/error.hpp"
#include "base/files/descriptor.hpp"
#include "base/job_attempt.hpp"

namespace distilld {

/// Content of DIR/.distilld-fence.json.
struct FenceRecord {
    std::uint32_t version = 1;
    std::string job{};
    std::uint64_t attempt = 0;
    std::string holder{};   ///< random, drawn by each owner
    std::string machine{};  ///< of the owner: boot_id()
    std::uint64_t process = 0;
};

BOOST_DESCRIBE_STRUCT(FenceRecord, (), (version, job, attempt, holder, machine, process))

/// What try_take() does with an earlier attempt of the same job that still has the folder.
enum class EarlierAttempt {
    replaced,               ///< it loses the folder
    replaced_if_it_stands,  ///< the same if it is known to be stopped; otherwise it may be saving its last step
};

/// Ownership of a folder that a run commits files to, and that the run can lose without noticing: its process was
/// stopped, or its node was cut off. Whoever takes the folder replaces DIR/.distilld-fence.json and holds a lock of
/// that file for life. commit() reads it again, under a lock of DIR/.distilld-fence.lock, so that a replaced owner
/// changes nothing any more (docs/decisions/0011-fences.md).
///
/// Two runs exclude each other while both live. Only a later attempt of the same job may replace the earlier one.
/// Across nodes, that needs a file system with flock(2) between nodes; where locks fail, every caller gets them.
class FolderFence {
  public:
    /// Takes the folder, which must exist. nullopt: another run has it, or is changing it now. Error: a later attempt
    /// of the job has taken it, or the fence is unreadable. Errors name the file.
    static Result<std::optional<FolderFence>> try_take(const std::filesystem::path& folder, const JobAttempt& attempt,
                                                       EarlierAttempt earlier = EarlierAttempt::replaced);

    /// The fence of another process of this run, which has the folder for as long as this is used. Its commit() changes
    /// nothing once that process has lost the folder, and cannot take it.
    [[nodiscard]] static FolderFence held_by(std::filesystem::path folder, const JobAttempt& attempt,
                                             std::string holder);

    /// Calls `change`, which should take little time, if the folder is still ours; creates a missing folder. If it is
    /// not, an error that names the owner, and is_lost() from then on. Any thread, but not inside `change`. Waits at
    /// most `timeout` for the lock.
    Result<void> commit(const std::function<Result<void>()>& change,
                        std::chrono::nanoseconds timeout = std::chrono::seconds(60));

    /// An error that names the owner if the folder is no longer ours, or the reason why the fence cannot be read.
    /// Changes nothing. Any thread.
    [[nodiscard]] Result<void> check() const;

    /// 16 hexadecimal digits that no other owner has.
    [[nodiscard]] const std::string& holder() const noexcept { return mine_.holder; }
    [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }
    /// A commit() or check() has found another owner. Any thread.
    [[nodiscard]] bool is_lost() const noexcept { return *lost_; }
    /// The owner before still lived when this one took the folder.
    [[nodiscard]] bool has_replaced() const noexcept { return has_replaced_; }

  private:
    FolderFence(std::filesystem::path folder, FenceRecord mine);
    Result<void> write();
    [[nodiscard]] Result<bool> is_written() const;

    std::filesystem::path folder_;
    FenceRecord mine_;
    Descriptor held_;  ///< locked; of the file that write() has made
    bool has_replaced_ = false;
    bool held_elsewhere_ = false;  ///< by another process of this run: see held_by()
    std::unique_ptr<std::atomic<bool>> lost_ = std::make_unique<std::atomic<bool>>(false);  ///< may be moved
};

}  // namespace distilld
