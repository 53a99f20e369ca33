#pragma once

#include <string>

#include "api/job_spec.hpp"

namespace distilld::cli {

/// One line for the end of a run: where its result lies, and a command that uses it. `output` is the folder; looks for
/// a tokenizer in it.
std::string next_step(const JobSpec& spec, const std::string& output);

}  // namespace distilld::cli
