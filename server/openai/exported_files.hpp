#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/job_types.hpp"
#include "server/jobs/artifact_folder.hpp"

namespace distilld::openai {

/// A file of the model that a job has exported.
struct ExportedFile {
    std::string id;    ///< "file-", the digits of the job's id, and those of a hash of the name
    std::string name;  ///< below the output folder: "model.safetensors", "merged/config.json"
    std::uint64_t bytes = 0;
};

/// The files of a model in the job's output folder, by name: those that its export wrote and no others, for the folder
/// may be the user's (artifact_folder_of()). Empty unless the job is of kind train and has succeeded. Blocks.
[[nodiscard]] std::vector<ExportedFile> exported_files(const api::Job& job);

/// ErrorException when the file cannot be opened, or is not there any more. Blocks.
[[nodiscard]] ArtifactFile open_exported(const api::Job& job, const std::string& name);

/// Id of the job whose export a file of this id belongs to; nothing: it is no such id.
[[nodiscard]] std::optional<std::string> job_of_exported_file(std::string_view file_id);

}  // namespace distilld::openai
