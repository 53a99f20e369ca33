#pragma once

#include "base/error.hpp"
#include "server/worker/emit_event.hpp"
#include "server/worker/preparation.hpp"

/// What a spec leaves to the run. Compute thread: the student is tried out.
namespace distilld {

/// Chooses the batch size by rows and memory, and the micro-batches by both, where the spec says "auto".
Result<void> choose_batch(PreparedRun& run, const EmitEvent& emit);

/// Chooses training.replicas by the network's size and the memory, so that no timing decides the last bits of weights.
/// Refuses replicas and groups of gradients that the device or the network does not allow.
Result<void> settle_replicas(PreparedRun& run, const EmitEvent& emit);

}  // namespace distilld
