#pragma once

#include <string>

#include "base/error.hpp"
#include "pipeline/core/student_snapshot.hpp"
#include "server/worker/preparation.hpp"

namespace distilld {

/// Writes the model folder of the run and returns the hash of its weights. The files are written to a folder beside
/// them, .distilld-export-HOLDER, and renamed into place if the output folder is still the run's; otherwise nothing is
/// changed. Disk.
Result<std::string> write_export(const StudentSnapshot& snapshot, PreparedRun& run);

}  // namespace distilld
