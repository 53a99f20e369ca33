#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "api/job_spec.hpp"
#include "base/error.hpp"
#include "models/checkpoint/store.hpp"
#include "server/worker/emit_event.hpp"

namespace distilld {

/// Where a run begins.
struct StartingPoint {
    std::optional<std::filesystem::path> resume_from;  ///< a complete checkpoint; absent: step 0
    bool replaces = false;                         ///< existing checkpoints are removed before the run writes its first
    std::vector<std::string> warnings;             ///< about damaged checkpoints
    std::vector<std::filesystem::path> damaged{};  ///< to be set aside before the first step
};

/// The newest complete checkpoint, if it belongs to the run in `spec` and the run is to resume: because it was
/// `ordered` (by the service after an interruption, or by `distilld run --resume`), or because the spec does not say
/// "resume": false. If not ordered, the run must have begun with the same weights. Checkpoints that cannot be resumed
/// from are an error (invalid_input) that names the folder and the difference, unless the spec says "overwrite". Fills
/// in what the spec leaves open, see adopt_decisions(). Changes no file.
Result<StartingPoint> find_starting_point(const models::CheckpointStore& store, JobSpec& spec,
                                          const std::string& dataset_hash, bool ordered);

/// Where checkpoints are stored: checkpoint.dir, or a folder in the output. `fence`: see CheckpointStore.
[[nodiscard]] models::CheckpointStore checkpoint_store(const JobSpec& spec, FolderFence* fence = nullptr);

/// Checks early, without the dataset and without hashing files, whether the run in `spec` would resume from the newest
/// checkpoint or may replace it. The error is that of find_starting_point().
Result<void> check_checkpoints(const models::CheckpointStore& store, const JobSpec& spec);

/// `spec`, with the decisions of the run that it would resume, as far as they are known before the student and the
/// dataset are read: the arithmetic, so that a resume on another machine computes as before, and the handling of long
/// documents. nullopt: there is no checkpoint to resume from.
std::optional<JobSpec> decisions_to_keep(const models::CheckpointStore& store, const JobSpec& spec, bool ordered);

/// Renames damaged checkpoints, since the run repeats their steps, and reports it. Call after the last refusal.
Result<void> set_damaged_aside(models::CheckpointStore store, const std::vector<std::filesystem::path>& damaged,
                               const EmitEvent& emit);

/// An error that names the field if the run is shorter than what it resumes from.
Result<void> check_length(const JobSpec& spec, std::uint64_t total_steps, std::uint64_t resumed_step,
                          const std::string& resumed_from);

}  // namespace distilld
