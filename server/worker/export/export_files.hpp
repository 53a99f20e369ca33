#pragma once

#include <filesystem>
#include <string>

#include "base/error.hpp"
#include "pipeline/core/student_snapshot.hpp"
#include "server/worker/preparation.hpp"

namespace distilld {

/// Writes the model folder of the run and returns the hash of its weights. The files are written to a folder beside
/// them, .distilld-export-HOLDER, and renamed into place if the output folder is still the run's; otherwise nothing is
/// changed. Disk.
Result<std::string> write_export(const StudentSnapshot& snapshot, PreparedRun& run);

/// Where write_program_export() writes: a folder of this holder in the output.
[[nodiscard]] std::filesystem::path program_export_folder(PreparedRun& run);

/// Writes the same files for eval.command. Removes what an interrupted export has left, and its own files after an
/// error. Disk.
Result<void> write_program_export(const StudentSnapshot& snapshot, PreparedRun& run);

}  // namespace distilld
