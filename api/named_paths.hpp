#pragma once

#include <vector>

#include "api/job_spec_json.hpp"
#include "api/spec_fields.hpp"

namespace distilld::api {

/// Files and folders that the spec names and that have to be there before the job (SpecField::there) but are not, each
/// with its pointer; relative paths are taken from the working folder. Looks at the disk.
[[nodiscard]] std::vector<Violation> missing_paths(const JobSpec& spec, const SpecTable& table);

}  // namespace distilld::api
