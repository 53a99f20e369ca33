#include "server/openai/exported_files.hpp"

#include <span>
#include <utility>

#include "base/hex.hpp"
#include "base/sha256.hpp"

namespace distilld::openai {
namespace {

constexpr std::string_view kJobPrefix = "job-";
constexpr std::string_view kFilePrefix = "file-";
constexpr std::size_t kJobDigits = 24;
constexpr std::size_t kNameDigits = 16;

std::string id_of(const std::string& job_id, const std::string& name) {
    return std::string(kFilePrefix) + job_id.substr(kJobPrefix.size()) + "-" + sha256_text(name).substr(0, kNameDigits);
}

}  // namespace

std::vector<ExportedFile> exported_files(const api::Job& job) {
    std::vector<ExportedFile> files;
    if (job.kind != JobKind::train || job.state != api::JobState::succeeded || !job.id.starts_with(kJobPrefix)) {
        return files;
    }
    api::Job model = job;
    model.resolved_spec_json.clear();  // files of sinks are not part of the model
    const auto folder = artifact_folder_of(model);
    if (!folder || !*folder) {
        return files;
    }
    for (const std::string& name : (*folder)->files) {
        if (const auto file = open_artifact(**folder, name); file && *file) {
            files.push_back({id_of(job.id, name), name, (*file)->size});
        }
    }
    return files;
}

ArtifactFile open_exported(const api::Job& job, const std::string& name) {
    const auto folder = artifact_folder_of(job);
    if (!folder) {
        throw ErrorException(folder.error());
    }
    auto file = *folder ? open_artifact(**folder, name) : Result<std::optional<ArtifactFile>>(std::nullopt);
    if (!file) {
        throw ErrorException(file.error());
    }
    if (!*file) {
        throw ErrorException(io_error(job.output + ": " + name + " no longer exists"));
    }
    return std::move(**file);
}

std::optional<std::string> job_of_exported_file(std::string_view file_id) {
    if (file_id.size() != kFilePrefix.size() + kJobDigits + 1 + kNameDigits || !file_id.starts_with(kFilePrefix)) {
        return std::nullopt;
    }
    file_id.remove_prefix(kFilePrefix.size());
    const auto job = file_id.substr(0, kJobDigits);
    if (!is_hex(job) || file_id[kJobDigits] != '-' || !is_hex(file_id.substr(kJobDigits + 1))) {
        return std::nullopt;
    }
    return std::string(kJobPrefix) + std::string(job);
}

}  // namespace distilld::openai
