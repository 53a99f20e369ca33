#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "pipeline/core/job_spec.hpp"

namespace distilld {

/// Says beside an exported model of which run it is.
inline constexpr const char* kExportOwnerFile = "distilld.json";

/// Whether `output` may take the model of the run: there is none in it, or one of the same run. Else the error
/// (invalid_input) names the file that would be replaced; with "overwrite" in the spec there is none. No
/// `dataset_hash`: the dataset is taken to be the same.
Result<void> check_output(const std::filesystem::path& output, const JobSpec& spec,
                          const std::optional<std::string>& dataset_hash);

/// Written before the first file of the export, so that what an interrupted one leaves is known to be the run's, and
/// once more with the hash of the weights and the export's files when it is whole. Those files, by their names below
/// `output`, are what the service gives out as artifacts (server/jobs/artifact_folder.hpp). `identity`: of
/// make_run_identity().
struct ExportRecord {
    std::string identity;
    std::uint64_t step = 0;
    std::string weights_sha256{};
    std::vector<std::string> files{};
};
Result<void> write_export_owner(const std::filesystem::path& output, const ExportRecord& record);

}  // namespace distilld
