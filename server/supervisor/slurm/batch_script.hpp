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

/// A script that becomes `command`: the program of the node and its arguments, each quoted for the shell.
///
/// A job of several ranks has one such command per rank, which srun starts: each finds its rank and the address of
/// rank 0 in srun's variables (server/cli/rank_environment.hpp), as `distilld run` under srun does (docs/ranks.md). So
/// each rank has a supervisor of its own that sees how its worker ends, and all of them end if one fails.
[[nodiscard]] std::string batch_script(const JobSpec& spec, const std::vector<std::string>& command);

}  // namespace distilld::slurm
