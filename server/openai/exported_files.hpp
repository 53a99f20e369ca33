#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/job_types.hpp"
#include "server/jobs/routes/artifact_folder.hpp"

namespace distilld::openai {

/// A file of a job's exported model.
struct ExportedFile {
    std::string id;    ///< "file-", the digits of the job's id, and the digits of a hash of the name
    std::string name;  ///< below the output folder: "model.safetensors", "merged/config.json"
    std::uint64_t bytes = 0;
};

/// The model's files in the job's output folder, by name. Only files that the export wrote, because the folder may be
/// the user's (artifact_folder_of()). Empty unless the job is of kind train and has succeeded. Blocks.
[[nodiscard]] std::vector<ExportedFile> exported_files(const api::Job& job);

/// ErrorException if the file is gone or cannot be opened. Blocks.
[[nodiscard]] ArtifactFile open_exported(const api::Job& job, const std::string& name);

/// Id of the job that exported the file with this id; nullopt: not such an id.
[[nodiscard]] std::optional<std::string> job_of_exported_file(std::string_view file_id);

}  // namespace distilld::openai
