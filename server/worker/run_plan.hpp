#pragma once

#include <string>

#include "pipeline/core/batch_plan.hpp"
#include "server/worker/preparation.hpp"
#include "server/worker/resume_identity.hpp"

/// What follows from a prepared run: its identity, and the rows that it uses.
namespace distilld {

/// What the run depends on besides its spec and its data.
[[nodiscard]] RunEnvironment run_environment_of(const PreparedRun& run);

/// The run's identity in its checkpoints and its export.
[[nodiscard]] std::string identity_of(const PreparedRun& run);

/// Whether rows of similar length share micro-batches: if each document has its own row and the order is free. A run
/// that an earlier version began keeps its order.
[[nodiscard]] bool groups_rows_by_length(const PreparedRun& run);

/// Whether steps end with an epoch, so that each epoch has every row once: if the run's length is given in epochs. A
/// run that an earlier version began keeps steps that cross epochs.
[[nodiscard]] bool ends_epochs(const PreparedRun& run);

/// The rows of its micro-batches.
[[nodiscard]] BatchPlan batch_plan(const PreparedRun& run);

/// Computes and reports the number of steps. An error that names the field if the run would learn nothing (a resumed
/// run keeps its learning rates), or if it is shorter than what it resumes from.
[[nodiscard]] Result<void> settle_steps(PreparedRun& run, const EmitEvent& emit);

}  // namespace distilld
