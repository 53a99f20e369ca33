#pragma once

#include <string>
#include <vector>

#include "api/job_spec.hpp"

/// What the service submits to Slurm. Pure.
namespace distilld::slurm {

/// The arguments of sbatch for the placement of the job. The script's output goes to `log`. The options of the spec
/// come first, so that none of them replaces one of ours.
[[nodiscard]] std::vector<std::string> batch_options(const JobSpec& spec, const std::string& name,
                                                     const std::string& log);

/// A script that becomes `command`: the program of the first node and its arguments, each quoted for the shell. It
/// starts workers on the other nodes (server/supervisor/slurm/allocation.hpp).
[[nodiscard]] std::string batch_script(const std::vector<std::string>& command);

}  // namespace distilld::slurm
