#pragma once

#include <string>
#include <vector>

#include "api/job_spec_json.hpp"
#include "api/spec_fields.hpp"

namespace distilld::api {

/// What to type where a folder that is not there has the form of a model's name, ORGANISATION/MODEL; empty where it has
/// not. To be added to a message.
[[nodiscard]] std::string hub_hint(const std::string& path);

/// Files and folders that the spec names and that have to be there before the job (SpecField::there) but are not, each
/// with its pointer; relative paths are taken from the working folder. Looks at the disk.
[[nodiscard]] std::vector<Violation> missing_paths(const JobSpec& spec, const SpecTable& table);

}  // namespace distilld::api
