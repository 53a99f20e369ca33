#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "pipeline/core/student_snapshot.hpp"

namespace distilld::models {

/// What newest() found.
struct NewestCheckpoint {
    std::optional<std::filesystem::path> folder;  ///< absent: there is no whole checkpoint
    std::string warning;                          ///< which newer ones are damaged, and how; empty: none
    std::vector<std::filesystem::path> damaged;   ///< those of them that are ours
};

/// A folder under a checkpoint's name.
struct CheckpointEntry {
    std::uint64_t step = 0;  ///< of its name
    std::filesystem::path folder;
    /// Of its manifest; absent: it has none that can be read, so it is not known to be ours and is never touched.
    std::optional<RunState> run;
};

/// The checkpoints of one job: folders step-00000042 beside each other. A folder under that name is complete and on the
/// disk: it is written as .tmp-step-00000042, every file and the folder are synced, and then renamed. One process and
/// one thread at a time. Torch-free.
class CheckpointStore {
  public:
    /// `folder`: <output>/checkpoints; created by the first commit. `keep` counts as at least 1.
    CheckpointStore(std::filesystem::path folder, std::uint32_t keep);

    /// Writes and commits the checkpoint of `step` and returns its folder, then removes all but the newest `keep`.
    /// One of the same step is replaced. Checkpoints of later steps are of a line that was abandoned (a run that goes
    /// on from an older one) and are removed too, so that they are never resumed from. A folder without a manifest of
    /// ours stays where it is; under the name of `step` it is an error. On an error (it names the path; its kind is
    /// disk_full when there is no space) the checkpoints that were there are untouched and nothing half written is
    /// left.
    Result<std::filesystem::path> commit(std::uint64_t step, const StudentSnapshot& snapshot);

    /// The checkpoint of the highest step whose files are all there with the hashes of its state.json. Changes nothing.
    [[nodiscard]] Result<NewestCheckpoint> newest() const;

    /// Every folder under a checkpoint's name, by falling step. Reads manifests, hashes nothing.
    [[nodiscard]] Result<std::vector<CheckpointEntry>> entries() const;

    /// Removes every checkpoint of ours, of whatever run.
    Result<void> clear();

    /// Renames damaged checkpoints (step-00000042.damaged), so that the run that goes on from an older one finds its
    /// names free. Returns where they lie; nothing is removed.
    Result<std::vector<std::filesystem::path>> set_aside(const std::vector<std::filesystem::path>& damaged);

    /// Removes what an interrupted commit left.
    Result<void> remove_leftovers();

    [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }

  private:
    Result<void> prune(std::uint64_t newest_step);

    std::filesystem::path folder_;
    std::uint32_t keep_;
};

/// "step-00000042".
std::string checkpoint_name(std::uint64_t step);

}  // namespace distilld::models
