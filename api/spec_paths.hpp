#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "api/job_spec.hpp"
#include "api/kinds/value_kinds.hpp"

/// The folders and files of a job spec, as texts; does not read the disk.
namespace distilld::api {

struct SpecTable;
struct SpecField;

/// Gives all spellings of a path one form: "a/b/" and "a/./b" become "a/b".
[[nodiscard]] std::filesystem::path normal_path(const std::string& text);

/// Makes relative folders and files of the spec absolute against `base`, and normalizes all.
void make_paths_absolute(JobSpec& spec, const std::filesystem::path& base);
void make_paths_absolute(JobSpec& spec, const std::filesystem::path& base, const SpecTable& table);

/// A file or folder that a spec names.
struct NamedPath {
    const SpecField& field;
    std::string pointer;  ///< "/dataset/train/1", "/teachers/NAME/store"
    std::string path;     ///< not empty
    PathUse use;          ///< what this job does with it; a store that the job does not fill is only read
};

/// Called for each named path, in the order of the rows.
using VisitPath = std::function<void(const NamedPath& named)>;
void each_path(const JobSpec& spec, const SpecTable& table, const VisitPath& visit);

}  // namespace distilld::api
