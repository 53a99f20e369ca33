#pragma once

#include <string>
#include <vector>

#include "api/job_spec_json.hpp"
#include "api/spec_fields.hpp"

namespace distilld::api {

/// A hint with the command that downloads a model, for a missing folder with a name like ORGANISATION/MODEL; else
/// empty. To be appended to a message.
[[nodiscard]] std::string hub_hint(const std::string& path);

/// Missing files and folders that must exist before the job (SpecField::there), each with its pointer. Relative paths
/// start at the working folder. Reads the disk.
[[nodiscard]] std::vector<Violation> missing_paths(const JobSpec& spec, const SpecTable& table);

}  // namespace distilld::api
