#pragma once

#include <filesystem>
#include <string>

#include "pipeline/core/job_spec.hpp"

/// The folders and files that a job spec names, as texts: none of them is looked at.
namespace distilld::api {

/// One form for all spellings of a path: "a/b/" and "a/./b" are "a/b".
[[nodiscard]] std::filesystem::path normal_path(const std::string& text);

/// Makes the relative folders and files of the spec (student.model, dataset.*, teacher.ca_file, checkpoint.dir, output)
/// absolute against `base`, and normal in form.
void make_paths_absolute(JobSpec& spec, const std::filesystem::path& base);

}  // namespace distilld::api
