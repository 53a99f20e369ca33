#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "pipeline/core/ranks/rank_place.hpp"

namespace distilld::cli {

/// The value of an environment variable; nullopt: it is not set.
using EnvironmentLookup = std::function<std::optional<std::string>(const char* name)>;

/// The rank that a launcher makes of this process: torchrun or Kubeflow's PyTorchJob (RANK, WORLD_SIZE, MASTER_ADDR,
/// MASTER_PORT), Kubeflow's TrainJob (PET_NODE_RANK, PET_NNODES, PET_MASTER_ADDR, PET_MASTER_PORT), or Slurm's srun
/// (SLURM_PROCID, SLURM_NTASKS, SLURM_STEP_ID). nullopt: there is no launcher, or it starts one process. The error
/// names the variable.
[[nodiscard]] Result<std::optional<RankPlace>> rank_from_environment(const EnvironmentLookup& environment);

}  // namespace distilld::cli
