#pragma once

#include "base/error.hpp"
#include "server/worker/preparation.hpp"

namespace distilld {

/// Opens the sinks of the run's spec into `run.sinks`. `ordered`: the run was interrupted and is resumed. Blocks on
/// files. Errors name the spec field. Sinks emit warnings from their own threads.
Result<void> open_run_sinks(PreparedRun& run, bool ordered, const EmitEvent& emit);

}  // namespace distilld
