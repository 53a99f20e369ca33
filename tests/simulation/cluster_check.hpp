#pragma once

#include <memory>
#include <vector>

#include "tests/simulation/cluster_folder.hpp"
#include "tests/simulation/cluster_slurm.hpp"
#include "tests/simulation/cluster_store.hpp"
#include "tests/simulation/cluster_training.hpp"
#include "tests/simulation/cluster_user.hpp"

namespace distilld::test {

/// What is promised, of jobs that have all ended.
void check_cluster(Stage& stage, StoreDisk& disk, const JobFolders& folders, const Said& said,
                   const std::vector<std::unique_ptr<User>>& users, const SimulatedSlurm& slurm);

}  // namespace distilld::test
