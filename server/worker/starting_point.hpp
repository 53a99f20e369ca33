#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "models/checkpoint/store.hpp"
#include "pipeline/core/job_spec.hpp"
#include "server/worker/emit_event.hpp"

namespace distilld {

/// Where a run begins.
struct StartingPoint {
    std::optional<std::filesystem::path> resume_from;  ///< a whole checkpoint; absent: step 0
    bool replaces = false;              ///< the checkpoints that are there go before the first of this run is written
    std::vector<std::string> warnings;  ///< of damaged checkpoints
    std::vector<std::filesystem::path> damaged{};  ///< those that are to be set aside before the first step
};

/// The newest whole checkpoint, when it is of the run that `spec` describes and the run is to go on: `ordered`, as by
/// the service after an interruption or by `distilld run --resume`, or because the spec does not say "resume": false.
/// Not ordered, a run goes on only from what began with the same weights. Checkpoints of another run, or those that are
/// not to be gone on from, are an error (invalid_input) that names the folder and the difference, unless the spec says
/// "overwrite". What the spec leaves open is taken over, see adopt_decisions(). Changes no file.
Result<StartingPoint> find_starting_point(const models::CheckpointStore& store, JobSpec& spec,
                                          const std::string& dataset_hash, bool ordered);

/// Where checkpoints go: checkpoint.dir, or a folder in the output.
[[nodiscard]] models::CheckpointStore checkpoint_store(const JobSpec& spec);

/// Whether the run that `spec` describes would go on from the newest checkpoint or may replace it, as far as can be
/// told before the dataset is read and without hashing a file. The error is that of find_starting_point().
Result<void> check_checkpoints(const models::CheckpointStore& store, const JobSpec& spec);

/// `spec` with what the run that it would go on with has decided of what it leaves open, as far as can be told before
/// the student and the dataset are read: its arithmetic, so that a resume on another machine computes as before, and
/// what becomes of long documents. Nothing: there is no checkpoint, or it is another run's or not to be gone on from.
std::optional<JobSpec> decisions_to_keep(const models::CheckpointStore& store, const JobSpec& spec, bool ordered);

/// Renames damaged checkpoints, to whose steps the run comes again, and says so. Nothing may refuse the run any more.
Result<void> set_damaged_aside(models::CheckpointStore store, const std::vector<std::filesystem::path>& damaged,
                               const EmitEvent& emit);

/// A run that is shorter than what it goes on from is an error that names the field.
Result<void> check_length(const JobSpec& spec, std::uint64_t total_steps, std::uint64_t resumed_step,
                          const std::string& resumed_from);

}  // namespace distilld
