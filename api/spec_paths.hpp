#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "api/value_kinds.hpp"
#include "pipeline/core/job_spec.hpp"

/// The folders and files that a job spec names, as texts: none of them is looked at.
namespace distilld::api {

struct SpecTable;
struct SpecField;

/// One form for all spellings of a path: "a/b/" and "a/./b" are "a/b".
[[nodiscard]] std::filesystem::path normal_path(const std::string& text);

/// Makes the folders and files of the spec that are relative absolute against `base`, and all normal in form.
void make_paths_absolute(JobSpec& spec, const std::filesystem::path& base);
void make_paths_absolute(JobSpec& spec, const std::filesystem::path& base, const SpecTable& table);

/// A file or folder that a spec names.
struct NamedPath {
    const SpecField& field;
    std::string pointer;  ///< "/dataset/train/1", "/teachers/NAME/store"
    std::string path;     ///< not empty
    PathUse use;          ///< what this job does with it: a store that it does not fill it reads
};

/// Calls `visit` with each, in the order of the rows.
using VisitPath = std::function<void(const NamedPath& named)>;
void each_path(const JobSpec& spec, const SpecTable& table, const VisitPath& visit);

}  // namespace distilld::api
