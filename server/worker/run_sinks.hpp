#pragma once

#include "base/error.hpp"
#include "server/worker/preparation.hpp"

namespace distilld {

/// Opens the sinks that the run's spec asks for, into `run.sinks`. `ordered`: the run was interrupted and goes on.
/// Blocks on files. Errors name the spec field. Warnings of the sinks are emitted from threads of theirs.
Result<void> open_run_sinks(PreparedRun& run, bool ordered, const EmitEvent& emit);

}  // namespace distilld
