#include "server/worker/starting_point.hpp"

#include <algorithm>
#include <utility>

#include "models/checkpoint/manifest.hpp"
#include "server/worker/resume_identity.hpp"

namespace distilld {

namespace {

constexpr const char* kWayOut =
    ". Nothing was changed: name another /output or /checkpoint/dir, or set \"overwrite\": true to begin at step 0 and "
    "replace what is there";

Error refusal(const std::filesystem::path& folder, const std::string& why) {
    return invalid_input(folder.string() + ": " + why + kWayOut);
}

/// Whether the run that wrote `identity` is the one in `spec`; if so, fills its decisions into `spec`.
Result<void> same_run(const std::string& identity, JobSpec& spec, const std::string& dataset_hash, bool ordered) {
    JobSpec adopted = spec;
    adopt_decisions(identity, adopted);
    if (Result<void> same = check_run_identity(identity, adopted, dataset_hash); !same) {
        return same;
    }
    // A run that may overwrite may have stopped before it did.
    if (!ordered || spec.overwrite) {
        if (Result<void> same = check_first_weights(identity, adopted); !same) {
            return same;
        }
    }
    spec = std::move(adopted);
    return {};
}

/// Whether the run may resume from a checkpoint with a manifest; if so, fills its decisions into `spec`.
Result<void> may_go_on(const models::CheckpointEntry& entry, JobSpec& spec, const std::string& dataset_hash,
                       bool ordered) {
    if (ordered || spec.resume) {
        return same_run(entry.run->spec_json, spec, dataset_hash, ordered);
    }
    return invalid_input("/resume: is false, but there are checkpoints up to step " + std::to_string(entry.step));
}

}  // namespace

models::CheckpointStore checkpoint_store(const JobSpec& spec, FolderFence* fence) {
    const std::filesystem::path folder = spec.checkpoint.dir.empty()
                                             ? std::filesystem::path(spec.output) / "checkpoints"
                                             : std::filesystem::path(spec.checkpoint.dir);
    return {folder, spec.checkpoint.keep, fence};
}

Result<void> check_checkpoints(const models::CheckpointStore& store, const JobSpec& spec) {
    const Result<std::vector<models::CheckpointEntry>> entries = store.entries();
    if (!entries) {
        return entries.error();
    }
    const auto ours = std::ranges::find_if(*entries, [](const auto& entry) { return entry.run.has_value(); });
    if (spec.overwrite || ours == entries->end()) {
        return {};
    }
    JobSpec resumed = spec;
    const Result<void> same = may_go_on(*ours, resumed, dataset_of(ours->run->spec_json), false);
    return same ? same : refusal(ours->folder, same.error().message);
}

Result<StartingPoint> find_starting_point(const models::CheckpointStore& store, JobSpec& spec,
                                          const std::string& dataset_hash, bool ordered) {
    const Result<std::vector<models::CheckpointEntry>> entries = store.entries();
    if (!entries) {
        return entries.error();
    }
    const Result<models::NewestCheckpoint> newest = store.newest();
    if (!newest) {
        return newest.error();
    }
    StartingPoint start;
    if (!newest->warning.empty()) {
        start.warnings.push_back(newest->warning);
    }
    start.damaged = newest->damaged;
    for (const models::CheckpointEntry& entry : *entries) {
        if (!entry.run) {
            continue;  // not ours, or damaged: a warning names it
        }
        if (newest->folder && entry.folder != *newest->folder) {
            continue;
        }
        const Result<void> same = may_go_on(entry, spec, dataset_hash, ordered);
        if (!same && !spec.overwrite) {
            return refusal(entry.folder, same.error().message);
        }
        if (!same) {
            start.replaces = true;
        } else if (newest->folder) {
            start.resume_from = *newest->folder;
        }
    }
    return start;
}

std::optional<JobSpec> decisions_to_keep(const models::CheckpointStore& store, const JobSpec& spec, bool ordered) {
    const Result<std::vector<models::CheckpointEntry>> entries = store.entries();
    if (!entries || !(ordered || spec.resume)) {
        return std::nullopt;
    }
    for (const models::CheckpointEntry& entry : *entries) {
        JobSpec resumed = spec;
        if (entry.run && same_run(entry.run->spec_json, resumed, dataset_of(entry.run->spec_json), ordered)) {
            return resumed;
        }
    }
    return std::nullopt;
}

Result<void> set_damaged_aside(models::CheckpointStore store, const std::vector<std::filesystem::path>& damaged,
                               const EmitEvent& emit) {
    const Result<std::vector<std::filesystem::path>> aside = store.set_aside(damaged);
    if (!aside) {
        return aside.error();
    }
    for (const std::filesystem::path& folder : *aside) {
        emit(LogEvent{
            "warn", "a damaged checkpoint was set aside as " + folder.string() + "; remove it if you do not need it"});
    }
    return {};
}

Result<void> check_length(const JobSpec& spec, std::uint64_t total_steps, std::uint64_t resumed_step,
                          const std::string& resumed_from) {
    if (resumed_step <= total_steps) {
        return {};
    }
    const std::string than = " below the checkpoint's step " + std::to_string(resumed_step) + " in " + resumed_from;
    if (spec.training.max_steps) {
        return invalid_input("/training/max_steps: " + std::to_string(total_steps) + " is" + than);
    }
    return invalid_input("/training/epochs: come to " + std::to_string(total_steps) + " steps, which is" + than);
}

}  // namespace distilld
