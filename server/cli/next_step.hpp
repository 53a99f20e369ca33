#pragma once

#include <string>

#include "pipeline/core/job_spec.hpp"

namespace distilld::cli {

/// One line for the end of a run: where what it has made lies, and a command that uses it. `output` is the folder;
/// whether a tokenizer lies in it is looked up.
std::string next_step(const JobSpec& spec, const std::string& output);

}  // namespace distilld::cli
