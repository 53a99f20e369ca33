#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/files/folder_fence.hpp"
#include "pipeline/core/student_snapshot.hpp"

namespace distilld::models {

/// Result of newest().
struct NewestCheckpoint {
    std::optional<std::filesystem::path> folder;  ///< absent: there is no intact checkpoint
    std::string warning;                          ///< names newer damaged checkpoints and their defects; empty: none
    std::vector<std::filesystem::path> damaged;   ///< those of the damaged ones that are ours
};

/// A folder with a checkpoint's name.
struct CheckpointEntry {
    std::uint64_t step = 0;  ///< from the folder's name
    std::filesystem::path folder;
    /// From the manifest. Absent if it is unreadable: the folder may then not be ours and is never touched.
    std::optional<RunState> run;
};

/// The checkpoints of one job: folders step-00000042 next to each other. A folder with such a name is complete and on
/// the disk: it is written as .tmp-step-00000042, every file and the folder are synced, and then it is renamed. With a
/// fence, that name ends with the fence's holder, and what has lost the folder to another process changes nothing
/// there. One process and one thread at a time. Torch-free.
class CheckpointStore {
  public:
    /// `folder`: <output>/checkpoints; created by the first commit. `keep` counts as at least 1. `fence`: of the
    /// folder, outlives this; null: no other process writes there.
    CheckpointStore(std::filesystem::path folder, std::uint32_t keep, FolderFence* fence = nullptr);

    /// Writes and commits the checkpoint of `step` and returns its folder, then removes all but the newest `keep`.
    /// Replaces a checkpoint of the same step. Checkpoints of later steps belong to an abandoned line (the run
    /// continued from an older one) and are removed too, so that no run resumes from them. A folder without our
    /// manifest stays; if it has the name of `step`, that is an error. After an error (it names the path; disk_full
    /// without space), existing checkpoints are unchanged and nothing half-written is left.
    Result<std::filesystem::path> commit(std::uint64_t step, const StudentSnapshot& snapshot);

    /// The checkpoint of the highest step in which all files match the hashes of state.json. Changes nothing.
    [[nodiscard]] Result<NewestCheckpoint> newest() const;

    /// Every folder with a checkpoint's name, by descending step. Reads manifests, hashes nothing.
    [[nodiscard]] Result<std::vector<CheckpointEntry>> entries() const;

    /// Removes all our checkpoints, of any run.
    Result<void> clear();

    /// Renames damaged checkpoints (step-00000042.damaged), so that the resumed run can use their names. Returns the
    /// new paths; nothing is removed.
    Result<std::vector<std::filesystem::path>> set_aside(const std::vector<std::filesystem::path>& damaged);

    /// Removes leftovers of an interrupted commit.
    Result<void> remove_leftovers();

    [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }

  private:
    /// Changes the folder if it is still ours.
    Result<void> change(const std::function<Result<void>()>& change);
    Result<void> remove_leftovers_now();
    [[nodiscard]] std::string temporary_name(const std::string& name) const;
    /// Renames the checkpoints beyond those to keep, and appends their new paths.
    Result<void> prune(std::uint64_t newest_step, std::vector<std::filesystem::path>& doomed);

    std::filesystem::path folder_;
    std::uint32_t keep_;
    FolderFence* fence_;
};

/// "step-00000042".
std::string checkpoint_name(std::uint64_t step);

}  // namespace distilld::models
