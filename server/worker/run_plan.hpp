#pragma once

#include <string>

#include "pipeline/core/batch_plan.hpp"
#include "server/worker/preparation.hpp"
#include "server/worker/resume_identity.hpp"

/// What a prepared run comes to: its identity, and which rows it goes through.
namespace distilld {

/// What it depends on beside its spec and its data.
[[nodiscard]] Surroundings surroundings_of(const PreparedRun& run);

/// What its checkpoints and its export say of the run.
[[nodiscard]] std::string identity_of(const PreparedRun& run);

/// Rows of like lengths share its micro-batches: of documents that have a row each, and no order that is to be kept. A
/// run that an earlier version began goes on in the order that it had.
[[nodiscard]] bool groups_rows_by_length(const PreparedRun& run);

/// Its steps end with an epoch, so that each has every row once: its length is one in epochs. A run that an earlier
/// version began goes on with steps that run on from one epoch into the next.
[[nodiscard]] bool ends_epochs(const PreparedRun& run);

/// Which rows its micro-batches have.
[[nodiscard]] BatchPlan batch_plan(const PreparedRun& run);

/// Fills in the steps of the run and says what they are. A run that would learn nothing is an error that names the
/// field (one that goes on keeps the learning rates that it has), and so is one that is shorter than what it goes on
/// from.
[[nodiscard]] Result<void> settle_steps(PreparedRun& run, const EmitEvent& emit);

}  // namespace distilld
