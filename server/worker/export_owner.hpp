#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "api/job_spec.hpp"
#include "base/error.hpp"

namespace distilld {

/// File beside an exported model that names its run.
inline constexpr const char* kExportOwnerFile = "distilld.json";

/// Whether `output` may take the model of the run: it holds none, or one of the same run. Otherwise the error
/// (invalid_input) names the file that would be replaced, unless the spec says "overwrite". Without a `dataset_hash`
/// the dataset is assumed to be the same.
Result<void> check_output(const std::filesystem::path& output, const JobSpec& spec,
                          const std::optional<std::string>& dataset_hash);

/// Written before the first file of the export, so that the files of an interrupted export are known to be the run's.
/// Written again when the export is complete, with the hash of the weights and the export's files. The service hands
/// out those files, named relative to `output`, as artifacts (server/jobs/routes/artifact_folder.hpp). `identity`: from
/// make_run_identity().
struct ExportRecord {
    std::string identity;
    std::uint64_t step = 0;
    std::string weights_sha256{};
    std::vector<std::string> files{};
};
Result<void> write_export_owner(const std::filesystem::path& output, const ExportRecord& record);

}  // namespace distilld
