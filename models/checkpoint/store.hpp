#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "pipeline/core/student_snapshot.hpp"

namespace distilld::models {

/// What newest() found.
struct NewestCheckpoint {
    std::optional<std::filesystem::path> folder;  ///< absent: there is no whole checkpoint
    std::string warning;                          ///< which newer ones are damaged, and how; empty: none
};

/// The checkpoints of one job: folders step-00000042 beside each other. A folder under that name is complete and on the
/// disk: it is written as .tmp-step-00000042, every file and the folder are synced, and then renamed. One process and
/// one thread at a time. Torch-free.
class CheckpointStore {
  public:
    /// `folder`: <output>/checkpoints; created by the first commit. `keep` counts as at least 1.
    CheckpointStore(std::filesystem::path folder, std::uint32_t keep);

    /// Writes and commits the checkpoint of `step` and returns its folder, then removes all but the newest `keep`.
    /// One of the same step is replaced. Checkpoints of later steps are of a line that was abandoned (a run from an
    /// older checkpoint, or from the start) and are removed too, so that they are never resumed from. On an error (it
    /// names the path) the checkpoints that were there are untouched.
    Result<std::filesystem::path> commit(std::uint64_t step, const StudentSnapshot& snapshot);

    /// The checkpoint of the highest step whose files are all there with the hashes of its state.json. Changes nothing.
    [[nodiscard]] Result<NewestCheckpoint> newest() const;

    /// The highest step of a checkpoint, whole or damaged; absent: there is none. Reads no file.
    [[nodiscard]] Result<std::optional<std::uint64_t>> latest_step() const;

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
