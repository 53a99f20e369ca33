#pragma once

#include <filesystem>
#include <string>

#include "pipeline/core/job_spec.hpp"

/// The folders and files that a job spec names, as texts: none of them is looked at.
namespace distilld::api {

struct SpecTable;

/// One form for all spellings of a path: "a/b/" and "a/./b" are "a/b".
[[nodiscard]] std::filesystem::path normal_path(const std::string& text);

/// Makes the folders and files of the spec that are relative absolute against `base`, and all normal in form.
void make_paths_absolute(JobSpec& spec, const std::filesystem::path& base);
void make_paths_absolute(JobSpec& spec, const std::filesystem::path& base, const SpecTable& table);

}  // namespace distilld::api
